"""From results to figures, with vLLM's definitions.

TPOT is (latency - TTFT) / (tokens - 1) of a request with more than one token; ITL are all gaps of
all requests; goodput counts requests that meet every objective, with a TPOT of 0 for those of one
token.

Runs in: the shell's process. Knows nothing of: printing, files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from octavo.cli.bench_serve.requests import Result
from octavo.tokenizer.tokenizer import Tokenizer


class Spread(msgspec.Struct):
    """Milliseconds over all requests; zeros if there are none."""

    mean: float
    median: float
    std: float
    percentiles: list[tuple[float, float]]  # (percentile, value)


class Metrics(msgspec.Struct):
    """The figures of a run; throughputs per second."""

    completed: int
    failed: int
    total_input: int
    total_output: int
    request_throughput: float
    request_goodput: float
    output_throughput: float
    total_token_throughput: float
    max_output_tokens_per_s: float
    max_concurrent_requests: int
    output_lens: list[int]  # of all results; failed ones have 0
    spreads: dict[str, Spread]  # metric -> its spread


def measure(
    results: Sequence[Result],
    duration_s: float,
    percentiles: Sequence[float],
    goodput_ms: Mapping[str, float],
    tokenizer: Tokenizer | None,
) -> Metrics:
    """Sums up a run.

    Args:
        results: of all requests.
        duration_s: from the first request to the end of the last.
        percentiles: of each metric.
        goodput_ms: objective -> most milliseconds.
        tokenizer: counts the output tokens where the server does not.
    """
    output_lens = [_num_tokens(r, tokenizer) if r.success else 0 for r in results]
    done = [
        (result, length)
        for result, length in zip(results, output_lens, strict=True)
        if result.success
    ]
    seconds = {
        "ttft": [result.ttft for result, _ in done],
        "tpot": [_tpot(result, length) for result, length in done if length > 1],
        "itl": [gap for result, _ in done for gap in result.itl],
        "e2el": [result.latency for result, _ in done],
        "client_queue_time": [result.queue_time for result, _ in done],
        "e2el_including_client_queue": [r.latency + r.queue_time for r, _ in done],
    }
    num_good = sum(_is_good(result, length, goodput_ms) for result, length in done)
    total_input = sum(result.prompt_len for result, _ in done)
    peak_tokens, peak_requests = _peaks([result for result, _ in done])
    return Metrics(
        completed=len(done),
        failed=len(results) - len(done),
        total_input=total_input,
        total_output=sum(output_lens),
        request_throughput=len(done) / duration_s,
        request_goodput=num_good / duration_s if goodput_ms else 0.0,
        output_throughput=sum(output_lens) / duration_s,
        total_token_throughput=(total_input + sum(output_lens)) / duration_s,
        max_output_tokens_per_s=peak_tokens,
        max_concurrent_requests=peak_requests,
        output_lens=output_lens,
        spreads={name: spread(values, percentiles) for name, values in seconds.items()},
    )


def spread(seconds: Sequence[float], percentiles: Sequence[float]) -> Spread:
    """Mean, median, deviation and percentiles in milliseconds."""
    values = np.asarray(seconds or [0.0]) * 1000.0
    return Spread(
        float(values.mean()),
        float(np.median(values)),
        float(values.std()),
        [(p, float(np.percentile(values, p))) for p in percentiles],
    )


def _num_tokens(result: Result, tokenizer: Tokenizer | None) -> int:
    if result.output_tokens:
        return result.output_tokens
    if tokenizer is None:
        return 1
    return len(tokenizer.encode(result.generated_text, add_special_tokens=False))


def _tpot(result: Result, num_tokens: int) -> float:
    return (result.latency - result.ttft) / (num_tokens - 1) if num_tokens > 1 else 0.0


def _is_good(result: Result, num_tokens: int, goodput_ms: Mapping[str, float]) -> bool:
    seconds = {
        "ttft": result.ttft,
        "tpot": _tpot(result, num_tokens),
        "e2el": result.latency,
    }
    return all(seconds[name] * 1000.0 <= limit for name, limit in goodput_ms.items())


def _peaks(results: Sequence[Result]) -> tuple[float, int]:
    """Most events in one second, and most requests that touch one second; seconds are counted from
    the first request."""
    if not results:
        return 0.0, 0
    start_s = min(result.start_time for result in results)
    end_s = max(result.start_time + result.latency for result in results)
    num_seconds = math.ceil(end_s - start_s) + 1
    tokens = np.zeros(num_seconds)
    requests = np.zeros(num_seconds, np.int64)
    for result in results:
        begun_s = result.start_time - start_s
        times = np.cumsum([begun_s + result.ttft, *result.itl])
        np.add.at(tokens, times.astype(np.int64).clip(0, num_seconds - 1), 1)
        requests[int(begun_s) : int(begun_s + result.latency) + 1] += 1
    return float(tokens.max()), int(requests.max())
