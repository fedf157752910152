"""`octavo bench`: measures the engine in this process, with vLLM's names and output.

Runs in: the shell's process. Owns: which benchmark runs, and the flags they share.
Knows nothing of: how a benchmark measures.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from octavo.cli.bench_latency import add_latency_flags, run_latency
from octavo.cli.bench_throughput import add_throughput_flags, run_throughput
from octavo.cli.console import show
from octavo.config.args import EngineArgs, split_options
from octavo.config.flags.nearest import did_you_mean
from octavo.config.parser import parse_serve
from octavo.errors import ConfigError
from octavo.llm import LLM

Run = Callable[[LLM, argparse.Namespace], Mapping[str, object]]

#: benchmark -> how it adds its flags, how it runs, one line of help
BENCHMARKS: dict[str, tuple[Callable[[argparse.ArgumentParser], None], Run, str]] = {
    "latency": (add_latency_flags, run_latency, "time of one batch from start to end"),
    "throughput": (add_throughput_flags, run_throughput, "many requests as fast as possible"),
}

_UNAVAILABLE = {
    "serve": "is not available yet; vllm bench serve and other load generators can measure "
    "octavo serve",
    "startup": "does not exist in Octavo: octavo serve logs the phases of its start",
    "mm-processor": "does not exist in Octavo: there is no multimodal input",
    "sweep": "does not exist in Octavo: run octavo bench in a loop",
}


def bench(words: list[str]) -> int:
    """Runs `octavo bench WORDS`; returns the exit code.

    Raises:
        ConfigError: no such benchmark, or a flag that does not fit.
        StartupError: the model cannot be loaded.
    """
    name = words[0] if words else "--help"
    if name in ("-h", "--help"):
        lines = ["usage: octavo bench BENCHMARK [flags]", "", "benchmarks:"]
        lines += [f"  {name:<12} {text}" for name, (_, _, text) in BENCHMARKS.items()]
        show("\n".join([*lines, "", "Each takes the engine's flags of octavo serve as well."]))
        return 0
    if name in _UNAVAILABLE:
        raise ConfigError(f"octavo bench {name} {_UNAVAILABLE[name]}")
    if name not in BENCHMARKS:
        hint = did_you_mean(name, BENCHMARKS, shown="octavo bench {}")
        raise ConfigError(f"unknown benchmark {name!r}{hint}")
    add_flags, run, text = BENCHMARKS[name]
    parser = _Parser(prog=f"octavo bench {name}", description=text, allow_abbrev=False)
    add_flags(parser)
    parser.add_argument("--output-json", type=Path, help="where the figures go as JSON")
    parser.epilog = "Every flag of the engine (octavo serve --help) is taken as well."
    options, rest = parser.parse_known_args([_dashed(word) for word in words[1:]])
    llm = LLM.of_args(_engine_args(rest))
    try:
        figures = run(llm, options)
    finally:
        llm.close()
    if options.output_json is not None:
        options.output_json.write_text(json.dumps(figures, indent=4))
    return 0


class _Parser(argparse.ArgumentParser):
    """Wrong usage is one sentence, as everywhere."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise ConfigError(f"{self.prog}: {message}")


def _dashed(word: str) -> str:
    """`--input_len=8` is `--input-len=8`."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _engine_args(words: list[str]) -> EngineArgs:
    model = None
    if "--model" in words:  # here it is the usual way to name one
        at = words.index("--model")
        model, words = words[at + 1 : at + 2], words[:at] + words[at + 2 :]
    parsed = parse_serve([*(model or []), *words])
    engine_args, server_args = split_options(parsed.options)
    engine_args.warnings += [*parsed.warnings, *server_args.warnings]
    return engine_args
