"""Octavo's running totals as metric families of prometheus_client, with vLLM's names and labels.

Imported on the first scrape (`octavo/metrics/prometheus.py`): the library costs tens of
milliseconds to import and nothing needs it to become ready.

Runs in: API process. Owns: names, labels, descriptions. Knows nothing of: sockets, routes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from octavo.metrics.engine_metrics import EngineMetrics
from octavo.metrics.histogram import Histogram
from octavo.metrics.http_metrics import HttpMetrics

#: family without `vllm:` -> what it measures
HISTOGRAM_HELP = {
    "time_to_first_token_seconds": "Histogram of time to first token in seconds.",
    "inter_token_latency_seconds": "Histogram of inter-token latency in seconds.",
    "request_time_per_output_token_seconds": (
        "Histogram of time_per_output_token_seconds per request."
    ),
    "e2e_request_latency_seconds": "Histogram of e2e request latency in seconds.",
    "request_queue_time_seconds": "Histogram of time spent in WAITING phase for request.",
    "request_inference_time_seconds": "Histogram of time spent in RUNNING phase for request.",
    "request_prefill_time_seconds": "Histogram of time spent in PREFILL phase for request.",
    "request_decode_time_seconds": "Histogram of time spent in DECODE phase for request.",
    "request_prompt_tokens": "Number of prefill tokens processed.",
    "request_generation_tokens": "Number of generation tokens processed.",
    "request_max_num_generation_tokens": "Histogram of maximum number of generation tokens of n.",
    "request_params_max_tokens": "Histogram of the max_tokens request parameter.",
    "request_prefill_kv_computed_tokens": (
        "Histogram of new KV tokens computed during prefill (without cached tokens)."
    ),
    "iteration_tokens_total": "Histogram of number of tokens per engine step.",
    "request_params_n": "Histogram of the n request parameter.",
    "request_num_preemptions": "Histogram of preemptions per request.",
}


class TotalsCollector(Collector):
    """Reads the totals when asked.

    Args:
        labels: values of `model_name` and `engine`.
        engine: the engine's totals.
        http: the HTTP side's totals.
        num_rejected: reason -> requests refused by a queue limit.
        cache_info: labels of `vllm:cache_config_info`.
    """

    def __init__(
        self,
        labels: tuple[str, str],
        engine: EngineMetrics,
        http: HttpMetrics,
        num_rejected: Mapping[str, int],
        cache_info: Mapping[str, str],
    ) -> None:
        self._labels = labels
        self.engine = engine
        self.http = http
        self._num_rejected = num_rejected
        self._cache_info = cache_info

    def collect(self) -> Iterator[Metric]:
        """All metrics of the engine and the HTTP side."""
        yield from self._gauges()
        yield from self._counters()
        yield from self._histograms()
        yield from self._http()

    def _gauges(self) -> Iterator[Metric]:
        scheduler = self.engine.scheduler
        names, values = ["model_name", "engine"], list(self._labels)
        for name, help_text, value in (
            (
                "num_requests_running",
                "Number of requests in model execution batches.",
                scheduler.num_running_reqs,
            ),
            (
                "num_requests_waiting",
                "Number of requests waiting to be processed.",
                scheduler.num_waiting_reqs,
            ),
            (
                "kv_cache_usage_perc",
                "KV-cache usage. 1 means 100 percent usage.",
                scheduler.kv_cache_usage,
            ),
        ):
            gauge = GaugeMetricFamily(f"vllm:{name}", help_text, labels=names)
            gauge.add_metric(values, value)
            yield gauge
        gauge = GaugeMetricFamily(
            "vllm:num_requests_waiting_by_reason",
            "Number of requests waiting, by reason.",
            labels=[*names, "reason"],
        )
        gauge.add_metric([*values, "capacity"], scheduler.num_waiting_reqs)
        gauge.add_metric([*values, "deferred"], 0)
        yield gauge
        if self._cache_info:
            gauge = GaugeMetricFamily(
                "vllm:cache_config_info",
                "Information of the LLMEngine CacheConfig.",
                labels=[*names, *self._cache_info],
            )
            gauge.add_metric([*values, *self._cache_info.values()], 1)
            yield gauge

    def _counters(self) -> Iterator[Metric]:
        engine = self.engine
        names, values = ["model_name", "engine"], list(self._labels)
        for name, help_text, value in (
            (
                "prefix_cache_queries",
                "Prefix cache queries, in terms of number of queried tokens.",
                engine.prefix_cache_queries,
            ),
            (
                "prefix_cache_hits",
                "Prefix cache hits, in terms of number of cached tokens.",
                engine.prefix_cache_hits,
            ),
            (
                "num_preemptions",
                "Cumulative number of preemption from the engine.",
                engine.num_preemptions,
            ),
            ("prompt_tokens", "Number of prefill tokens processed.", engine.num_prompt_tokens),
            (
                "prompt_tokens_cached",
                "Number of prompt tokens found in the prefix cache.",
                engine.num_cached_tokens,
            ),
            (
                "generation_tokens",
                "Number of generation tokens processed.",
                engine.num_generation_tokens,
            ),
        ):
            counter = CounterMetricFamily(f"vllm:{name}", help_text, labels=names)
            counter.add_metric(values, value)
            yield counter
        by_source = CounterMetricFamily(
            "vllm:prompt_tokens_by_source",
            "Number of prompt tokens by source.",
            labels=[*names, "source"],
        )
        num_computed = engine.num_prompt_tokens - engine.num_cached_tokens
        by_source.add_metric([*values, "local_compute"], num_computed)
        by_source.add_metric([*values, "local_cache_hit"], engine.num_cached_tokens)
        by_source.add_metric([*values, "external_kv_transfer"], 0)
        yield by_source
        success = CounterMetricFamily(
            "vllm:request_success",
            "Count of successfully processed requests.",
            labels=[*names, "finished_reason"],
        )
        for reason, number in engine.num_finished.items():
            success.add_metric([*values, reason], number)
        yield success
        rejections = CounterMetricFamily(
            "vllm:admission_rejections",
            "Number of requests refused by a queue limit.",
            labels=["model_name", "reason"],
        )
        for reason, number in self._num_rejected.items():
            rejections.add_metric([self._labels[0], reason], number)
        yield rejections
        readings = CounterMetricFamily(
            "vllm:tool_call_parser_invocations",
            "Total number of choices read for tool calls.",
            labels=["model_name", "mode", "outcome", "request_type"],
        )
        for (mode, outcome), number in self.http.num_tool_readings.items():
            readings.add_metric([self._labels[0], mode, outcome, "chat_completions"], number)
        yield readings

    def _histograms(self) -> Iterator[Metric]:
        for name, histogram in self.engine.histograms.items():
            family = HistogramMetricFamily(
                f"vllm:{name}", HISTOGRAM_HELP[name], labels=["model_name", "engine"]
            )
            family.add_metric(list(self._labels), *_samples(histogram))
            yield family

    def _http(self) -> Iterator[Metric]:
        http = self.http
        requests = CounterMetricFamily(
            "http_requests",
            "Total number of requests by method, status and handler.",
            labels=["handler", "method", "status"],
        )
        for (method, status, handler), number in http.num_requests.items():
            requests.add_metric([handler, method, status], number)
        yield requests
        highr = HistogramMetricFamily(
            "http_request_duration_highr_seconds",
            "Latency with many buckets but no API specific labels.",
        )
        highr.add_metric([], *_samples(http.duration_highr))
        yield highr
        duration = HistogramMetricFamily(
            "http_request_duration_seconds",
            "Latency with only few buckets by handler.",
            labels=["handler", "method"],
        )
        for (method, handler), histogram in http.duration.items():
            duration.add_metric([handler, method], *_samples(histogram))
        yield duration


def make_registry(collector: TotalsCollector) -> CollectorRegistry:
    """The totals, and what the library knows of this process (`process_*`, `python_*`)."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(collector)
    return registry


def render(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The page and its content type, in the format the `Accept` header asks for."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _samples(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    names = [*map(repr, histogram.bounds), "+Inf"]  # a bound is written as `1.0`, `0.005`
    return list(zip(names, map(float, histogram.cumulative()), strict=True)), histogram.sum
