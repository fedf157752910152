"""`octavo bench`: which benchmark runs.

Runs in: the shell's process. Knows nothing of: how a benchmark measures.
"""

from __future__ import annotations

import importlib

from octavo.cli.console import show
from octavo.config.flags.nearest import did_you_mean
from octavo.errors import ConfigError

#: benchmark -> `module:function`, by name: a load test does not import the engine
TARGETS = {
    "serve": "octavo.cli.bench_serve.command:bench_serve",
    "latency": "octavo.cli.bench_engine:bench_latency",
    "throughput": "octavo.cli.bench_engine:bench_throughput",
}

_HELP = """\
usage: octavo bench BENCHMARK [flags]

benchmarks:
  serve        load test of a running server
  latency      time of one batch from start to end, in this process
  throughput   many requests as fast as possible, in this process

octavo bench BENCHMARK --help lists the flags. The last two take the engine's flags of octavo serve
as well."""

_UNAVAILABLE = {
    "startup": "does not exist in Octavo: octavo serve logs the phases of its start",
    "mm-processor": "does not exist in Octavo: there is no multimodal input",
    "sweep": "does not exist in Octavo: run octavo bench in a loop",
}


def bench(words: list[str]) -> int:
    """Runs `octavo bench WORDS`; returns the exit code.

    Raises:
        ConfigError: no such benchmark, or a flag that does not fit.
        StartupError: the model cannot be loaded.
        CommandFailed: the server cannot be measured.
    """
    name = words[0] if words else "--help"
    if name in ("-h", "--help"):
        show(_HELP)
        return 0
    if name in _UNAVAILABLE:
        raise ConfigError(f"octavo bench {name} {_UNAVAILABLE[name]}")
    if name not in TARGETS:
        hint = did_you_mean(name, TARGETS, shown="octavo bench {}")
        raise ConfigError(f"unknown benchmark {name!r}{hint}")
    module, _, function = TARGETS[name].partition(":")
    exit_code: int = getattr(importlib.import_module(module), function)(words[1:])
    return exit_code
