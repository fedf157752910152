from __future__ import annotations

import pytest

from octavo.errors import ConfigError
from octavo.messages.engine import PrefixCacheStats, SchedulerStats
from octavo.metrics import buckets
from octavo.metrics.engine_metrics import EngineMetrics
from octavo.metrics.stats import FinishedRequestStats, IterationStats

FINISHED = FinishedRequestStats(
    finish_reason="stop",
    num_prompt_tokens=10,
    num_cached_tokens=4,
    num_generation_tokens=3,
    max_tokens=16,
    num_preemptions=1,
    e2e_s=1.0,
    queue_s=0.1,
    prefill_s=0.2,
    decode_s=0.3,
    inference_s=0.5,
    time_per_output_token_s=0.15,
)


def test_steps_add_up() -> None:
    metrics = EngineMetrics(100)
    for _ in range(2):
        metrics.record(
            SchedulerStats(3, 4, 0.5, PrefixCacheStats(16, 8), 1, 40),
            IterationStats(10, 4, 3, [0.02], [0.004, 0.004], [FINISHED], [(2, 3)]),
        )
    assert (metrics.num_prompt_tokens, metrics.num_cached_tokens) == (20, 8)
    assert metrics.num_generation_tokens == 6
    assert (metrics.prefix_cache_queries, metrics.prefix_cache_hits) == (32, 16)
    assert metrics.num_preemptions == 2
    assert metrics.num_finished == {
        "stop": 2,
        "length": 0,
        "abort": 0,
        "error": 0,
        "repetition": 0,
    }
    assert metrics.scheduler.num_waiting_reqs == 4
    counts = {name: h.cumulative()[-1] for name, h in metrics.histograms.items()}
    assert counts.pop("inter_token_latency_seconds") == 4
    assert set(counts.values()) == {2}


def test_phases_a_request_did_not_reach_are_not_observed() -> None:
    metrics = EngineMetrics(100)
    aborted = FinishedRequestStats("abort", 10, 0, 0, 16, 0, 1.0)
    metrics.record(None, IterationStats(finished=[aborted]))
    assert metrics.histograms["request_decode_time_seconds"].cumulative()[-1] == 0
    assert metrics.histograms["e2e_request_latency_seconds"].cumulative()[-1] == 1


def test_custom_buckets_replace_a_familys_own() -> None:
    metrics = EngineMetrics(
        100, {"vllm:time_to_first_token_seconds": [0.1, 1], "request_params_n": [1]}
    )
    assert metrics.histograms["time_to_first_token_seconds"].bounds == (0.1, 1.0)
    assert metrics.histograms["request_params_n"].bounds == (1.0,)


def test_custom_buckets_of_an_unknown_family_are_refused() -> None:
    with pytest.raises(ConfigError, match="'vllm:nope', which is no histogram"):
        EngineMetrics(100, {"vllm:nope": [1.0]})


def test_vllms_bounds_are_all_there_and_finer_ones_below_ten_milliseconds() -> None:
    vllm_ttft = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0,
                 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0}  # fmt: skip
    vllm_itl = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
                10.0, 20.0, 40.0, 80.0}  # fmt: skip
    vllm_latency = {0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0,
                    60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0}  # fmt: skip
    for ours, theirs in (
        (buckets.TIME_TO_FIRST_TOKEN_S, vllm_ttft),
        (buckets.INTER_TOKEN_LATENCY_S, vllm_itl),
        (buckets.REQUEST_LATENCY_S, vllm_latency),
    ):
        assert theirs <= set(ours)
        assert sum(bound < 0.01 for bound in ours) >= 5


def test_token_bounds_are_the_one_two_five_series_up_to_the_window() -> None:
    assert buckets.one_two_five(2048) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
    assert buckets.one_two_five(1) == (1,)
