"""Named loads, and one server's figures under them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.server import Server, ServerFailed

WARM_UP = ("-n", "2", "-c", "2", "--out", "8", "--seed", "99")


@dataclass(frozen=True)
class Scenario:
    """A load and the figures that count; rates first, times of a start without a load.

    `arguments` are those of `load.py`, none: only the start is measured.
    """

    arguments: tuple[str, ...]
    figures: tuple[str, ...]


def _scenario(arguments: str, *figures: str) -> Scenario:
    return Scenario(tuple(arguments.split()), figures)


SCENARIOS = {
    "decode": _scenario("-n 4 -c 1 --out 128", "tpot_p50_ms", "ttft_p50_ms", "out_tps"),
    "prefill": _scenario("-n 8 -c 1 --out 1 --prompt-chars 4000", "total_tps", "ttft_p50_ms"),
    "serve8": _scenario("-n 32 -c 8 --out 128", "out_tps", "ttft_p50_ms", "tpot_p50_ms"),
    "serve32": _scenario(
        "-n 64 -c 32 --out 128", "out_tps", "total_tps", "ttft_p50_ms", "tpot_p50_ms"
    ),
    "prefix": _scenario(
        "-n 16 -c 4 --out 16 --prompt-chars 400 --shared-chars 6000", "total_tps", "ttft_p50_ms"
    ),
    "start": _scenario("", "ready_s", "pss_mb"),
}


@dataclass(frozen=True)
class Contender:
    """A server that can be started: `{port}` in its command is replaced."""

    name: str
    command: str
    model: str = "m"
    environment: tuple[tuple[str, str], ...] = ()


def measure(
    contender: Contender, scenarios: Sequence[str], *, seed: int, logs: Path, limit_s: float
) -> dict[str, dict[str, Any]]:
    """Starts the server, applies the loads one after another, stops it; figures by scenario.

    No two loads have a seed in common, so that none finds another's prompts in a prefix cache.

    Raises:
        ServerFailed: it did not start, or requests failed, or it does not stream though it should.
    """
    found: dict[str, dict[str, Any]] = {}
    with Server(
        contender.name,
        contender.command,
        logs / f"{contender.name}.log",
        limit_s=limit_s,
        model=contender.model,
        environment=dict(contender.environment),
    ) as server:
        base = [sys.executable, "-m", "benchmarks.peers.load"]
        base += ["--port", str(server.port), "--model", contender.model]
        is_warm = False
        for name in scenarios:
            figures: dict[str, Any] = {"ready_s": round(server.ready_s, 3)}
            if SCENARIOS[name].arguments:
                if not is_warm:
                    _run([*base, *WARM_UP], limit_s)
                    is_warm = True
                own_seed = str(100 * seed + list(SCENARIOS).index(name))
                figures |= _run([*base, *SCENARIOS[name].arguments, "--seed", own_seed], limit_s)
                _check(contender.name, figures)
            figures["pss_mb"] = round(server.pss_bytes() / 2**20, 1)
            found[name] = figures
    return found


def _run(words: Sequence[str], limit_s: float) -> dict[str, Any]:
    run = subprocess.run(words, check=True, capture_output=True, text=True, timeout=limit_s)
    figures: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return figures


def _check(name: str, figures: dict[str, Any]) -> None:
    if figures["ok"] != figures["n"]:
        raise ServerFailed(f"{name}: requests failed: {figures['bad']}")
    if figures["concurrency"] == 1 and figures["chunks_per_token"] < 0.9 and figures["out"] > 1:
        raise ServerFailed(f"{name} does not stream token by token: its times mean nothing")
