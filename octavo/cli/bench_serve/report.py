"""The printed table, the JSON object and the file of a run, with vLLM's names and order.

Runs in: the shell's process. Knows nothing of: how figures are found.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.cli.bench_serve.flags import METRICS
from octavo.cli.bench_serve.metrics import Metrics, Spread, spread
from octavo.cli.bench_serve.requests import Result
from octavo.cli.console import show
from octavo.errors import CommandFailed

_WIDTH = 50
_OF_TOKENS = ("ttft", "tpot", "itl")
#: only with `--save-detailed`
_DETAILS = (
    "input_lens", "output_lens", "start_times", "ttfts", "itls", "generated_texts", "errors",
)  # fmt: skip

Figures = dict[str, Any]


def print_and_collect(
    metrics: Metrics,
    results: Sequence[Result],
    probes: Sequence[Result],
    options: argparse.Namespace,
    *,
    duration_s: float,
    selected: Sequence[str],
    has_tokenizer: bool,
) -> Figures:
    """Prints the table; returns the figures under their names in the result file.

    Args:
        probes: requests of `--probe-request-rate`.
        selected: metrics whose spread is shown.
        has_tokenizer: without one there are no figures of tokens.
    """
    rows = _head(metrics, options, duration_s, has_tokenizer=has_tokenizer)
    lines = [f"{' Serving Benchmark Result ':=^{_WIDTH}}", *rows]
    figures: Figures = {
        "duration": duration_s,
        "completed": metrics.completed,
        "failed": metrics.failed,
        "total_input_tokens": metrics.total_input,
        "total_output_tokens": metrics.total_output,
        "request_throughput": metrics.request_throughput,
        "request_goodput": metrics.request_goodput if options.goodput else None,
        "output_throughput": metrics.output_throughput,
        "total_token_throughput": metrics.total_token_throughput,
        "input_lens": [result.prompt_len for result in results],
        "output_lens": metrics.output_lens,
        "ttfts": [result.ttft for result in results],
        "itls": [result.itl for result in results],
        "latencies": [result.latency for result in results],
        "start_times": [result.start_time for result in results],
        "queue_times": [result.queue_time for result in results],
        "generated_texts": [result.generated_text for result in results],
        "errors": [result.error for result in results],
        "max_output_tokens_per_s": metrics.max_output_tokens_per_s,
        "max_concurrent_requests": metrics.max_concurrent_requests,
        "rtfx": 0.0,
    }
    if probes:
        lines += _probe_rows(probes, figures)
    for name, (short, header) in METRICS.items():
        if name in selected and _is_known(name, options, has_tokenizer=has_tokenizer):
            lines += [f"{header:-^{_WIDTH}}", *_spread_rows(short, metrics.spreads[name])]
            figures |= _spread_figures(name, metrics.spreads[name])
    show("\n".join([*lines, "=" * _WIDTH]))
    return figures


def describe_run(
    options: argparse.Namespace, *, date: str, model_id: str, tokenizer_id: str | None
) -> Figures:
    """What was measured: the first part of the result file."""
    described: Figures = {
        "date": date,
        "endpoint_type": options.backend,
        "backend": options.backend,
        "label": options.label,
        "model_id": model_id,
        "tokenizer_id": tokenizer_id,
        "num_prompts": options.num_prompts,
        **dict(options.metadata or ()),
        "request_rate": "inf" if math.isinf(options.request_rate) else options.request_rate,
        "burstiness": options.burstiness,
        "max_concurrency": options.max_concurrency,
    }
    if options.ramp_up_strategy is not None:
        described["ramp_up_strategy"] = options.ramp_up_strategy
        described["ramp_up_start_rps"] = options.ramp_up_start_rps
        described["ramp_up_end_rps"] = options.ramp_up_end_rps
    return described


def save(figures: Figures, options: argparse.Namespace, *, date: str, model_id: str) -> None:
    """Writes the result file if one is asked for.

    Raises:
        CommandFailed: it cannot be written.
    """
    if not (options.save_result or options.append_result):
        return
    kept = {k: v for k, v in figures.items() if options.save_detailed or k not in _DETAILS}
    path = os.path.join(options.result_dir or "", _file_name(options, model_id, date))
    try:
        os.makedirs(options.result_dir or ".", exist_ok=True)
        with open(path, "a" if options.append_result else "w", encoding="utf-8") as file:
            if options.append_result and file.tell():
                file.write("\n")
            json.dump(kept, file)
    except OSError as error:
        raise CommandFailed(f"the results cannot be written to {path}: {error.strerror}") from None


def _head(
    metrics: Metrics, options: argparse.Namespace, duration_s: float, *, has_tokenizer: bool
) -> list[str]:
    rows: dict[str, int | float] = {
        "Successful requests:": metrics.completed,
        "Failed requests:": metrics.failed,
    }
    if options.max_concurrency is not None:
        rows["Maximum request concurrency:"] = options.max_concurrency
    if not math.isinf(options.request_rate):
        rows["Request rate configured (RPS):"] = float(options.request_rate)
    rows["Benchmark duration (s):"] = duration_s
    rows["Total input tokens:"] = metrics.total_input
    if has_tokenizer:
        rows["Total generated tokens:"] = metrics.total_output
    rows["Request throughput (req/s):"] = metrics.request_throughput
    if options.goodput:
        rows["Request goodput (req/s):"] = metrics.request_goodput
    if has_tokenizer:
        rows["Output token throughput (tok/s):"] = metrics.output_throughput
        rows["Peak output token throughput (tok/s):"] = metrics.max_output_tokens_per_s
    rows["Peak concurrent requests:"] = float(metrics.max_concurrent_requests)
    if has_tokenizer:
        rows["Total token throughput (tok/s):"] = metrics.total_token_throughput
    return [_row(name, value) for name, value in rows.items()]


def _probe_rows(probes: Sequence[Result], figures: Figures) -> list[str]:
    latencies = [probe.latency for probe in probes if probe.success]
    if not latencies:
        return []
    of_probes = spread(latencies, [99.0])
    figures["probe_completed"] = len(latencies)
    figures["probe_failed"] = len(probes) - len(latencies)
    figures["probe_median_e2el_ms"] = of_probes.median
    figures["probe_p99_e2el_ms"] = of_probes.percentiles[0][1]
    figures["probe_max_e2el_ms"] = max(latencies) * 1000.0
    return [
        f"{'Probe Requests':-^{_WIDTH}}",
        _row("Probe requests completed:", figures["probe_completed"]),
        _row("Probe requests failed:", figures["probe_failed"]),
        _row("Median probe E2EL (ms):", figures["probe_median_e2el_ms"]),
        _row("P99 probe E2EL (ms):", figures["probe_p99_e2el_ms"]),
        _row("Max probe E2EL (ms):", figures["probe_max_e2el_ms"]),
    ]


def _is_known(name: str, options: argparse.Namespace, *, has_tokenizer: bool) -> bool:
    if name in _OF_TOKENS:
        return has_tokenizer
    if name == "client_queue_time":
        return options.max_concurrency is not None
    if name == "e2el_including_client_queue":
        return options.max_concurrency is not None and not math.isinf(options.request_rate)
    return True


def _spread_rows(short: str, values: Spread) -> list[str]:
    rows = [_row(f"Mean {short} (ms):", values.mean), _row(f"Median {short} (ms):", values.median)]
    return rows + [_row(f"P{p:g} {short} (ms):", value) for p, value in values.percentiles]


def _spread_figures(name: str, values: Spread) -> Mapping[str, float]:
    return {
        f"mean_{name}_ms": values.mean,
        f"median_{name}_ms": values.median,
        f"std_{name}_ms": values.std,
        **{f"p{p:g}_{name}_ms": value for p, value in values.percentiles},
    }


def _row(name: str, value: int | float) -> str:
    return f"{name:<40} {value:<10.2f}" if isinstance(value, float) else f"{name:<40} {value:<10}"


def _file_name(options: argparse.Namespace, model_id: str, date: str) -> str:
    if options.result_filename:
        return str(options.result_filename)
    concurrency = options.max_concurrency
    at_most = "" if concurrency is None else f"-concurrency{concurrency}"
    rate = f"{options.request_rate}qps"
    if options.ramp_up_strategy is not None:
        ends = f"{options.ramp_up_start_rps}qps-{options.ramp_up_end_rps}qps"
        rate = f"ramp-up-{options.ramp_up_strategy}-{ends}"
    name = model_id.rpartition("/")[2]
    return f"{options.label or options.backend}-{rate}{at_most}-{name}-{date}.json"
