from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from octavo.config.engine import CacheConfig
from octavo.messages.engine import PrefixCacheStats, SchedulerStats
from octavo.metrics.engine_metrics import EngineMetrics
from octavo.metrics.http_metrics import HttpMetrics
from octavo.metrics.prometheus import Prometheus
from octavo.metrics.stats import FinishedRequestStats, IterationStats
from tests.fakes.fake_core_client import READY

#: family -> type, as scraped from a server that has served
FAMILIES = {
    "vllm:num_requests_running": "gauge",
    "vllm:num_requests_waiting": "gauge",
    "vllm:num_requests_waiting_by_reason": "gauge",
    "vllm:kv_cache_usage_perc": "gauge",
    "vllm:cache_config_info": "gauge",
    "vllm:prefix_cache_queries": "counter",
    "vllm:prefix_cache_hits": "counter",
    "vllm:num_preemptions": "counter",
    "vllm:prompt_tokens": "counter",
    "vllm:prompt_tokens_by_source": "counter",
    "vllm:prompt_tokens_cached": "counter",
    "vllm:generation_tokens": "counter",
    "vllm:request_success": "counter",
    "vllm:admission_rejections": "counter",
    "vllm:tool_call_parser_invocations": "counter",
    "vllm:time_to_first_token_seconds": "histogram",
    "vllm:inter_token_latency_seconds": "histogram",
    "vllm:request_time_per_output_token_seconds": "histogram",
    "vllm:e2e_request_latency_seconds": "histogram",
    "vllm:request_queue_time_seconds": "histogram",
    "vllm:request_inference_time_seconds": "histogram",
    "vllm:request_prefill_time_seconds": "histogram",
    "vllm:request_decode_time_seconds": "histogram",
    "vllm:request_prompt_tokens": "histogram",
    "vllm:request_generation_tokens": "histogram",
    "vllm:request_max_num_generation_tokens": "histogram",
    "vllm:request_params_max_tokens": "histogram",
    "vllm:request_prefill_kv_computed_tokens": "histogram",
    "vllm:iteration_tokens_total": "histogram",
    "vllm:request_params_n": "histogram",
    "vllm:request_num_preemptions": "histogram",
    "http_requests": "counter",
    "http_request_duration_highr_seconds": "histogram",
    "http_request_duration_seconds": "histogram",
}
#: as in vLLM, which counts them before an engine has them
WITHOUT_ENGINE = ("vllm:admission", "vllm:tool_call_parser")


def page() -> Prometheus:
    engine, http = EngineMetrics(2048), HttpMetrics()
    engine.record(
        SchedulerStats(3, 4, 0.5, PrefixCacheStats(16, 8), 1, 40),
        IterationStats(
            10, 4, 3, [0.02], [0.004, 0.3], [FinishedRequestStats("stop", 10, 4, 3, 16, 0, 1.0)]
        ),
    )
    http.observe("POST", "/v1/chat/completions", "2xx", 0.2)
    http.observe("POST", "/v1/chat/completions", "4xx", 0.001)
    made = Prometheus("tiny", engine, http, {"max_num_queued_reqs": 2, "max_num_queued_tokens": 0})
    made.set_cache_info(CacheConfig(), READY)
    return made


def scrape(made: Prometheus) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = made.render()[0].decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(made: Prometheus, name: str, **labels: str) -> float:
    return scrape(made)[name, tuple(sorted(labels.items()))]


LABELS = {"model_name": "tiny", "engine": "0"}


def test_the_families_and_their_types_are_these() -> None:
    families = {
        family.name: family.type
        for family in text_string_to_metric_families(page().render()[0].decode())
        if not family.name.startswith(("process_", "python_"))
    }
    assert families == FAMILIES


def test_this_process_is_described_too() -> None:
    text = page().render()[0].decode()
    assert "process_resident_memory_bytes " in text
    assert "python_info{" in text


def test_every_engine_series_has_model_name_and_engine() -> None:
    for name, labels in scrape(page()):
        if name.startswith("vllm:") and not name.startswith(WITHOUT_ENGINE):
            assert {"model_name", "engine"} <= dict(labels).keys(), name


def test_counters_end_in_total() -> None:
    made = page()
    assert value(made, "vllm:prompt_tokens_total", **LABELS) == 10
    assert value(made, "vllm:prompt_tokens_cached_total", **LABELS) == 4
    assert value(made, "vllm:generation_tokens_total", **LABELS) == 3
    assert value(made, "vllm:prefix_cache_hits_total", **LABELS) == 8
    assert value(made, "vllm:num_preemptions_total", **LABELS) == 1
    by_source = "vllm:prompt_tokens_by_source_total"
    assert value(made, by_source, source="local_compute", **LABELS) == 6
    assert value(made, by_source, source="local_cache_hit", **LABELS) == 4
    assert value(made, "vllm:request_success_total", finished_reason="stop", **LABELS) == 1
    assert value(made, "vllm:request_success_total", finished_reason="abort", **LABELS) == 0
    refused = {"model_name": "tiny", "reason": "max_num_queued_reqs"}
    assert value(made, "vllm:admission_rejections_total", **refused) == 2


def test_gauges_show_the_last_state() -> None:
    made = page()
    assert value(made, "vllm:num_requests_running", **LABELS) == 3
    assert value(made, "vllm:num_requests_waiting", **LABELS) == 4
    assert value(made, "vllm:kv_cache_usage_perc", **LABELS) == 0.5
    made.engine.record(SchedulerStats(), IterationStats())
    assert value(made, "vllm:num_requests_running", **LABELS) == 0


def test_histograms_have_buckets_sum_and_count() -> None:
    made = page()
    name = "vllm:inter_token_latency_seconds"
    assert value(made, f"{name}_bucket", le="0.003", **LABELS) == 0
    assert value(made, f"{name}_bucket", le="0.004", **LABELS) == 1
    assert value(made, f"{name}_bucket", le="+Inf", **LABELS) == 2
    assert value(made, f"{name}_count", **LABELS) == 2
    assert value(made, f"{name}_sum", **LABELS) == 0.304


def test_cache_config_info_carries_the_configuration_as_labels() -> None:
    (labels,) = (
        dict(labels) for name, labels in scrape(page()) if name == "vllm:cache_config_info"
    )
    assert labels["block_size"] == "16"
    assert labels["num_gpu_blocks"] == "65"
    assert labels["enable_prefix_caching"] == "True"


def test_http_requests_are_counted_by_route_method_and_class_of_status() -> None:
    made = page()
    labels = {"handler": "/v1/chat/completions", "method": "POST"}
    assert value(made, "http_requests_total", status="2xx", **labels) == 1
    assert value(made, "http_requests_total", status="4xx", **labels) == 1
    assert value(made, "http_request_duration_seconds_count", **labels) == 2
    assert value(made, "http_request_duration_highr_seconds_bucket", le="0.01") == 1


def test_the_accept_header_chooses_the_format() -> None:
    made = page()
    assert made.render()[1].startswith("text/plain; version=0.0.4")
    body, content_type = made.render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_the_seed_of_block_hashes_is_not_shown() -> None:
    cache = CacheConfig(prefix_caching_hash_algo="sha256_cbor", prefix_hash_seed="for-few")
    made = page()
    made.set_cache_info(cache, READY)
    text = made.render()[0].decode()
    assert 'prefix_caching_hash_algo="sha256_cbor"' in text
    assert "for-few" not in text


def test_choices_that_were_read_for_tool_calls_are_counted() -> None:
    made = page()
    made.http.observe_tool_reading(True, True)
    made.http.observe_tool_reading(False, False)
    made.http.observe_tool_reading(False, False)
    name = "vllm:tool_call_parser_invocations_total"
    counts = {
        (labels["mode"], labels["outcome"]): value
        for (series, pairs), value in scrape(made).items()
        if series == name and (labels := dict(pairs))["request_type"] == "chat_completions"
    }
    assert counts == {
        ("streaming", "tool_call"): 1,
        ("streaming", "no_tool_call"): 0,
        ("non_streaming", "tool_call"): 0,
        ("non_streaming", "no_tool_call"): 2,
    }
