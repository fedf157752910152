"""Where the start goes: phases of both processes, CPU time, imports. Writes docs/start-up.md.

Starts `octavo serve --startup-trace` a few times and takes each phase's minimum; imports are those
of the API process, each module's minimum of own time under `-X importtime`.

    python -m benchmarks.start_up [--runs 5] [--out docs/start-up.md]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.peers.server import free_port
from benchmarks.streams import wait_ready

PROGRAM = """
import octavo.cli.main, octavo.cli.serve, octavo.cli.serve_run
import octavo.launch.serve, octavo.launch.engine_config
octavo.launch.serve.defer_package_file("uvicorn")
import octavo.launch.front_end
"""
HEAD = """# Where the start goes

The default model from exec to the first answer: the least of {runs} starts for each phase, measured
by `python -m benchmarks.start_up` with `octavo serve --startup-trace`. Phases of the two processes
run side by side; on a machine that is busy the wall times are too long, the CPU times less so.
"""
TAIL = """
## What it is

- Imports: most are the standard library's (asyncio with ssl, logging, typing, inspect). uvicorn's
  package file is not executed (its command line imports click and multiprocessing: about 20 ms of
  CPU time); ids are made without `uuid`.
- Tokenizer, about 97 ms of CPU time for 49,152 tokens: 40 in the library's BPE, 31 reading the
  strings of the file, 13 splitting merges, 9 the dict of the vocabulary. A thread would not make it
  less: both cores are busy, the core's process repacks weights meanwhile.
- zmq is imported by both processes, about 13 ms each.
"""
Times = dict[tuple[str, str], float]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("docs/start-up.md"))
    args = parser.parse_args()
    phases: Times = {}
    cpu_ms = [float("inf")] * 2
    for _ in range(args.runs):
        one, cpu = start()
        phases = {key: min(value, phases.get(key, value)) for key, value in one.items()}
        cpu_ms = [min(pair) for pair in zip(cpu_ms, cpu, strict=True)]
    rows = [f"| {process} | {name} | {ms:.0f} |" for (process, name), ms in phases.items()]
    packages = sorted(imports(args.runs).items(), key=lambda item: -item[1])
    lines = [
        HEAD.format(runs=args.runs),
        f"CPU time until ready: API process {cpu_ms[0]:.0f} ms, core {cpu_ms[1]:.0f} ms.",
        "\n## Phases\n\n| process | phase | ms |\n|---|---|---|",
        *rows,
        "\n## Imports of the API process, by package\n\n| package | ms |\n|---|---|",
        *(f"| {name} | {ms:.1f} |" for name, ms in packages if ms >= 1.0),
        f"| all | {sum(ms for _, ms in packages):.0f} |",
        TAIL.rstrip(),
    ]
    args.out.write_text("\n".join(lines) + "\n")


def start() -> tuple[Times, list[float]]:
    """One start: milliseconds of each phase, and of CPU of the two processes."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        words = ["-m", "octavo", "serve", "--host", "127.0.0.1", "--port", str(port)]
        process = subprocess.Popen(
            [sys.executable, *words, "--startup-trace", str(trace)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_ready(port, process)  # type: ignore[arg-type]
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            pids = [process.pid, *map(int, children)][:2]
            cpu = [time.clock_gettime_ns((~pid << 3) | 2) / 1e6 for pid in pids]
            events = json.loads(trace.read_text())["traceEvents"]
        finally:
            process.terminate()
            process.wait()
    names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    return {(names[e["pid"]], e["name"]): e["dur"] / 1e3 for e in events if e["ph"] == "X"}, cpu


def imports(runs: int) -> dict[str, float]:
    """Milliseconds of own time of each top-level package's modules."""
    best: dict[str, float] = {}
    for _ in range(runs):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", PROGRAM],
            capture_output=True,
            text=True,
            check=True,
        )
        for own, module in re.findall(r"time:\s+(\d+) \|\s+\d+ \|\s+(\S+)", done.stderr):
            best[module] = min(best.get(module, float("inf")), int(own) / 1e3)
    totals: dict[str, float] = {}
    for module, ms in best.items():
        package = module.split(".")[0].lstrip("_")
        package = "standard library" if package in sys.stdlib_module_names else package
        totals[package] = totals.get(package, 0.0) + ms
    return totals


if __name__ == "__main__":
    main()
