"""Benchmarks of the engine in this process: `octavo bench latency`, `octavo bench throughput`.

Runs in: the user's process. Owns: the flags they share, and the engine's end.
Knows nothing of: how a benchmark measures.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from octavo.cli.argument_parser import CommandParser
from octavo.cli.bench_latency import add_latency_flags, run_latency
from octavo.cli.bench_throughput import add_throughput_flags, run_throughput
from octavo.cli.engine_words import read_engine_words
from octavo.llm import LLM

Run = Callable[[LLM, argparse.Namespace], Mapping[str, object]]


def bench_latency(words: list[str]) -> int:
    """Runs `octavo bench latency WORDS`; returns the exit code.

    Raises:
        ConfigError: a flag does not fit.
        StartupError: the model cannot be loaded.
    """
    parser = CommandParser("octavo bench latency", "Time of one batch from start to end.")
    add_latency_flags(parser)
    return _run(parser, run_latency, words)


def bench_throughput(words: list[str]) -> int:
    """Runs `octavo bench throughput WORDS`; returns the exit code.

    Raises:
        ConfigError: a flag does not fit.
        StartupError: the model cannot be loaded.
    """
    parser = CommandParser("octavo bench throughput", "Many requests as fast as possible.")
    add_throughput_flags(parser)
    return _run(parser, run_throughput, words)


def _run(parser: CommandParser, run: Run, words: list[str]) -> int:
    parser.add_argument("--output-json", type=Path, help="where the figures go as JSON")
    parser.epilog = "Every flag of the engine (octavo serve --help) is taken as well."
    options, rest = parser.read_known(words)
    llm = LLM.of_args(read_engine_words(rest)[0])
    try:
        figures = run(llm, options)
    finally:
        llm.close()
    if options.output_json is not None:
        options.output_json.write_text(json.dumps(figures, indent=4))
    return 0
