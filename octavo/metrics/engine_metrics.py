"""Running totals of one engine: what Prometheus will ask for, kept as plain numbers.

Recording a step is a few additions and one bisection per observed value; names and labels are
given when someone asks (`octavo/metrics/prometheus.py`).

Runs in: API process. Owns: the totals since start. Knows nothing of: Prometheus, sockets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from octavo.errors import ConfigError
from octavo.messages.engine import FinishReason, SchedulerStats
from octavo.metrics import buckets
from octavo.metrics.histogram import Histogram
from octavo.metrics.stats import FinishedRequestStats, IterationStats


class EngineMetrics:
    """Totals of one engine; a `StatsRecorder`.

    Args:
        max_model_len: largest bound of the histograms that count tokens of a request.
        custom_buckets: family name (with or without `vllm:`) -> ascending bounds that replace its
            own.

    Raises:
        ConfigError: a custom bucket names no family.
    """

    def __init__(
        self, max_model_len: int, custom_buckets: Mapping[str, Sequence[float]] | None = None
    ) -> None:
        lengths = buckets.one_two_five(max_model_len)
        latencies = buckets.REQUEST_LATENCY_S
        bounds: dict[str, Sequence[float]] = {
            "time_to_first_token_seconds": buckets.TIME_TO_FIRST_TOKEN_S,
            "inter_token_latency_seconds": buckets.INTER_TOKEN_LATENCY_S,
            "request_time_per_output_token_seconds": buckets.INTER_TOKEN_LATENCY_S,
            "e2e_request_latency_seconds": latencies,
            "request_queue_time_seconds": latencies,
            "request_inference_time_seconds": latencies,
            "request_prefill_time_seconds": latencies,
            "request_decode_time_seconds": latencies,
            "request_prompt_tokens": lengths,
            "request_generation_tokens": lengths,
            "request_max_num_generation_tokens": lengths,
            "request_params_max_tokens": lengths,
            "request_prefill_kv_computed_tokens": lengths,
            "iteration_tokens_total": buckets.ITERATION_TOKENS,
            "request_params_n": buckets.N_PER_REQUEST,
            "request_num_preemptions": buckets.PREEMPTIONS_PER_REQUEST,
        }
        for name, custom in (custom_buckets or {}).items():
            family = name.removeprefix("vllm:")
            if family not in bounds:
                raise ConfigError(
                    f"--custom-histogram-buckets names {name!r}, which is no histogram; the "
                    f"histograms are: {', '.join(sorted(bounds))}."
                )
            bounds[family] = custom
        #: by family name without prefix
        self.histograms = {name: Histogram(edges) for name, edges in bounds.items()}
        self._ttft = self.histograms["time_to_first_token_seconds"]
        self._itl = self.histograms["inter_token_latency_seconds"]
        self._iteration_tokens = self.histograms["iteration_tokens_total"]

        self.num_prompt_tokens = 0
        self.num_cached_tokens = 0
        self.num_generation_tokens = 0
        self.num_preemptions = 0
        self.prefix_cache_queries = 0
        self.prefix_cache_hits = 0
        self.num_finished = {str(reason): 0 for reason in FinishReason}
        #: the last one heard
        self.scheduler = SchedulerStats()

    def record(self, scheduler: SchedulerStats | None, iteration: IterationStats) -> None:
        """Adds one step."""
        if scheduler is not None:
            self.scheduler = scheduler
            self.num_preemptions += scheduler.num_preemptions
            self.prefix_cache_queries += scheduler.prefix_cache.queries
            self.prefix_cache_hits += scheduler.prefix_cache.hits
            if scheduler.num_scheduled_tokens:
                self._iteration_tokens.observe(scheduler.num_scheduled_tokens)
        self.num_prompt_tokens += iteration.num_prompt_tokens
        self.num_cached_tokens += iteration.num_cached_tokens
        self.num_generation_tokens += iteration.num_generation_tokens
        if iteration.inter_token_latency_s:
            self._itl.observe_all(iteration.inter_token_latency_s)
        if iteration.time_to_first_token_s:
            self._ttft.observe_all(iteration.time_to_first_token_s)
        for finished in iteration.finished:
            self._record_finished(finished)
        for n, max_num_tokens in iteration.completed:
            self.histograms["request_params_n"].observe(n)
            self.histograms["request_max_num_generation_tokens"].observe(max_num_tokens)

    def _record_finished(self, request: FinishedRequestStats) -> None:
        self.num_finished[request.finish_reason] += 1
        num_computed = request.num_prompt_tokens - request.num_cached_tokens
        for name, value in (
            ("e2e_request_latency_seconds", request.e2e_s),
            ("request_queue_time_seconds", request.queue_s),
            ("request_prefill_time_seconds", request.prefill_s),
            ("request_decode_time_seconds", request.decode_s),
            ("request_inference_time_seconds", request.inference_s),
            ("request_time_per_output_token_seconds", request.time_per_output_token_s),
            ("request_prompt_tokens", request.num_prompt_tokens),
            ("request_generation_tokens", request.num_generation_tokens),
            ("request_params_max_tokens", request.max_tokens),
            ("request_prefill_kv_computed_tokens", num_computed),
            ("request_num_preemptions", request.num_preemptions),
        ):
            if value is not None:
                self.histograms[name].observe(value)
