"""How speed grows: time per token with the context, throughput with streams, start with the model.

    python -m benchmarks.growth [--only context streams start] [--rounds 3]

In process but for the start. Figures go to benchmarks/results/growth.json, pictures are drawn from
it by `python -m benchmarks.plots`. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.peers.engines import ROOT, Engines, clean_environment
from benchmarks.peers.machine import machine_facts
from benchmarks.peers.server import Server
from octavo.envs import read_environ
from octavo.weights.hub import hub_settings, locate
from scripts.models import MODELS, path_of

RESULTS = ROOT / "benchmarks" / "results" / "growth.json"
CONTEXTS = (256, 512, 1024, 2048, 4096, 8000)
STREAMS = (1, 2, 4, 8, 16, 32, 64, 128)
MAX_MODEL_LEN = 8192
Point = dict[str, Any]


def context(rounds: int) -> list[Point]:
    """Milliseconds per token of one stream behind prompts of growing length."""
    points = []
    for length in CONTEXTS:
        runs = [
            _bench("latency", input_len=length, output_len=33, batch_size=1, num_iters=3)
            for _ in range(rounds)
        ]
        points.append(
            {
                "tokens": length,
                "tpot_ms": 1000 / median(run["decode_tokens_per_second"] for run in runs),
                "prefill_tps": median(run["prefill_tokens_per_second"] for run in runs),
            }
        )
        print(f"  context {points[-1]}", file=sys.stderr)
    return points


def streams(rounds: int) -> list[Point]:
    """Output tokens per second with a growing number of streams: 128 tokens in, 64 out."""
    points = []
    for count in STREAMS:
        runs = [
            _bench(
                "throughput",
                input_len=128,
                output_len=64,
                num_prompts=max(8, 2 * count),
                max_num_seqs=count,
            )
            for _ in range(rounds)
        ]
        rate = median(run["output_tokens_per_second"] for run in runs)
        points.append({"streams": count, "out_tps": rate})
        print(f"  streams {points[-1]}", file=sys.stderr)
    return points


def start(rounds: int) -> list[Point]:
    """Seconds to the first token of a server, files in the page cache, by size of the file."""
    files = [Path(locate(None, hub_settings(read_environ())))]
    files += [path for name in MODELS if (path := path_of(name)).exists()]
    points = []
    for path in files:
        command = Engines().octavo(path).command
        seconds = []
        for _ in range(rounds + 1):  # the first reads the file
            with tempfile.TemporaryDirectory() as folder:
                log = Path(folder) / "log"
                with Server("octavo", command, log) as server:
                    seconds.append(server.ready_s)
        size = path.stat().st_size / 1e6
        points.append({"model": path.stem, "megabytes": size, "seconds": median(seconds[1:])})
        print(f"  start {points[-1]}", file=sys.stderr)
    return points


def _bench(what: str, **flags: int) -> Point:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        words = [sys.executable, "-m", "octavo", "bench", what, "--disable-detokenize"]
        words += ["--max-model-len", str(MAX_MODEL_LEN), "--output-json", str(out)]
        for name, value in flags.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        subprocess.run(words, check=True, capture_output=True)
        figures: Point = json.loads(out.read_text())
    return figures


CURVES: dict[str, Callable[[int], list[Point]]] = {
    "context": context,
    "streams": streams,
    "start": start,
}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=CURVES, default=list(CURVES))
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    clean_environment()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in args.only:
        known[name] = {"machine": machine_facts(), "points": CURVES[name](args.rounds)}
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
