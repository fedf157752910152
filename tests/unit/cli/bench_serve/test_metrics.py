"""Figures by vLLM's definitions, computed by hand."""

from __future__ import annotations

import pytest

from octavo.cli.bench_serve.metrics import measure, spread
from octavo.cli.bench_serve.requests import Result
from tests.fakes.byte_tokenizer import ByteTokenizer


def result(start: float, ttft: float, *itl: float, tokens: int, text: str = "") -> Result:
    return Result(
        prompt_len=10,
        generated_text=text,
        success=True,
        latency=ttft + sum(itl),
        output_tokens=tokens,
        ttft=ttft,
        itl=list(itl),
        start_time=start,
        queue_time=0.25,
    )


FAILED = Result(prompt_len=10, error="no", start_time=100.5)
RESULTS = [
    result(100.0, 0.2, 0.1, 0.3, tokens=3),
    FAILED,
    result(101.5, 0.4, tokens=1),
    result(100.5, 0.1, 0.5, 0.5, 0.5, tokens=5),
]


def test_counts_and_rates() -> None:
    metrics = measure(RESULTS, 2.0, [50.0], {}, None)
    assert (metrics.completed, metrics.failed) == (3, 1)
    assert (metrics.total_input, metrics.total_output) == (30, 9)
    assert metrics.output_lens == [3, 0, 1, 5]
    assert metrics.request_throughput == 1.5
    assert metrics.output_throughput == 4.5
    assert metrics.total_token_throughput == 19.5
    assert metrics.request_goodput == 0.0


def test_spreads_are_in_milliseconds() -> None:
    spreads = measure(RESULTS, 2.0, [0.0, 100.0], {}, None).spreads
    assert spreads["ttft"].mean == pytest.approx(700 / 3)
    assert spreads["ttft"].median == pytest.approx(200)
    # of requests with more than one token: 0.4 / 2 and 1.5 / 4 seconds
    assert spreads["tpot"].percentiles == [(0.0, pytest.approx(200)), (100.0, pytest.approx(375))]
    assert spreads["itl"].mean == pytest.approx(1900 / 5)
    assert spreads["e2el"].percentiles[1][1] == pytest.approx(1600)
    assert spreads["client_queue_time"].mean == pytest.approx(250)
    assert spreads["e2el_including_client_queue"].median == pytest.approx(850)


def test_goodput_counts_what_meets_every_objective() -> None:
    def good(**limits: float) -> float:
        return measure(RESULTS, 1.0, [], limits, None).request_goodput

    assert good(ttft=250.0) == 2
    assert good(tpot=250.0) == 2  # one token has a TPOT of 0
    assert good(ttft=250.0, e2el=700.0) == 1


def test_peaks_are_of_seconds_since_the_first_request() -> None:
    # tokens at 0.2 0.3 0.6 | 0.6 1.1 1.6 2.1 | 1.9; requests touch 0 | 1 | 0 1 2
    metrics = measure(RESULTS, 2.0, [], {}, None)
    assert metrics.max_output_tokens_per_s == 4
    assert metrics.max_concurrent_requests == 2


def test_tokens_the_server_does_not_count_are_counted_here() -> None:
    silent = result(0.0, 0.1, 0.1, tokens=0, text="abab!")
    assert measure([silent], 1.0, [], {}, ByteTokenizer()).total_output == 3
    assert measure([silent], 1.0, [], {}, None).total_output == 1


def test_nothing_but_failures_gives_zeros() -> None:
    metrics = measure([FAILED], 1.0, [99.0], {}, None)
    assert metrics.completed == 0
    assert metrics.max_concurrent_requests == 0
    assert metrics.spreads["ttft"] == spread([], [99.0])
    assert metrics.spreads["ttft"].mean == 0.0
