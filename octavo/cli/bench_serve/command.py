"""`octavo bench serve`: the command line, and the rules between its flags.

Runs in: the shell's process. Knows nothing of: how anything is measured.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

from octavo.cli.bench_serve.flags import (
    BACKENDS,
    DATASETS,
    DEFAULT_METRICS,
    METRICS,
    OBJECTIVES,
    make_parser,
)
from octavo.cli.console import show
from octavo.errors import ConfigError


def bench_serve(words: list[str]) -> int:
    """Runs `octavo bench serve WORDS`; returns the exit code.

    Raises:
        ConfigError: flags do not fit, or a file is wrong.
        CommandFailed: the server cannot be reached, or results cannot be written.
    """
    options = make_parser().read(words)
    _check(options)
    goodput_ms = _goodput(options.goodput)
    shown = argparse.Namespace(**{**vars(options), "header": "***" if options.header else None})
    show(str(shown))
    from octavo.cli.bench_serve.session import measure_server  # --help does without numpy, asyncio

    return measure_server(options, goodput_ms)


def _check(options: argparse.Namespace) -> None:
    """Rules between flags, before anything is sent."""
    ending = BACKENDS[options.backend]
    is_chat = options.endpoint.endswith(BACKENDS["openai-chat"])
    if not options.endpoint.endswith(ending) or is_chat != (options.backend == "openai-chat"):
        raise ConfigError(
            f"--backend {options.backend} needs an --endpoint such as /v1/{ending}, got "
            f"{options.endpoint}"
        )
    for name in ("max_concurrency", "num_prompts", "request_rate", "burstiness"):
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise ConfigError(f"--{name.replace('_', '-')} must be above 0, got {value}")
    wrong = set((options.percentile_metrics or DEFAULT_METRICS).split(",")) - set(METRICS)
    if wrong:
        raise ConfigError(
            f"--percentile-metrics: there is no {', '.join(sorted(wrong))}; there are "
            f"{', '.join(METRICS)}"
        )
    if options.ramp_up_strategy is not None:
        _check_ramp_up(options)
    for name in DATASETS:
        if options.output_len is not None:
            setattr(options, f"{name}_output_len", options.output_len)
    if options.input_len is not None:
        options.random_input_len = options.input_len
    if options.dataset_name == "random":
        options.ignore_eos = True


def _check_ramp_up(options: argparse.Namespace) -> None:
    start, end = options.ramp_up_start_rps, options.ramp_up_end_rps
    if not math.isinf(options.request_rate):
        raise ConfigError("--request-rate and --ramp-up-strategy exclude each other")
    if start is None or end is None or not 0 <= start <= end or end == 0:
        raise ConfigError(
            "--ramp-up-strategy needs --ramp-up-start-rps and --ramp-up-end-rps, the first not "
            f"above the second, got {start} and {end}"
        )
    if start == 0:
        raise ConfigError(
            "--ramp-up-start-rps must be at least 1: the first request would never be sent"
        )


def _goodput(pairs: Sequence[str] | None) -> dict[str, float]:
    limits: dict[str, float] = {}
    for pair in pairs or ():
        name, colon, text = pair.partition(":")
        try:
            limits[name] = float(text)
        except ValueError:
            colon = ""
        if not colon or name not in OBJECTIVES or not limits[name] >= 0:
            raise ConfigError(
                f"--goodput takes METRIC:MILLISECONDS with {', '.join(OBJECTIVES)}, got {pair!r}"
            )
    return limits
