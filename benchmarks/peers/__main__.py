"""`make bench-peers`: every target, its measured ratio and the verdict.

    python -m benchmarks.peers [--only decode start] [--rounds 3]

Results go to benchmarks/results/peers.json section by section, so a run of some sections leaves the
others as they were. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.peers.engines import ROOT, Engines, clean_environment
from benchmarks.peers.machine import machine_facts
from benchmarks.peers.rows import Missing, Row, table
from benchmarks.peers.sections import SECTIONS, Bench
from octavo.envs import read_environ
from octavo.weights.hub import hub_settings, locate
from scripts.models import MODELS, path_of

RESULTS = ROOT / "benchmarks" / "results" / "peers.json"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--leave-out", nargs="+", default=[], metavar="ENGINE", help="of servers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, default=RESULTS)
    args = parser.parse_args()
    clean_environment()
    engines = Engines(threads=args.threads)
    names = MODELS if "real" in args.only else ()
    bench = Bench(
        engines,
        default=Path(locate(None, hub_settings(read_environ()))),
        bf16=engines.program("smollm2-bf16"),
        real_models={name: path_of(name) for name in names},
        num_rounds=args.rounds,
        left_out=frozenset(args.leave_out),
        logs=Path(tempfile.mkdtemp(prefix="peers-")),
    )
    shown: list[Row | Missing] = []
    for name in args.only:
        begin = time.monotonic()
        print(f"{name}:", file=sys.stderr)
        rows = SECTIONS[name](bench)
        shown += rows
        _record(args.json, name, rows, bench.raw)
        print(f"  {name} took {time.monotonic() - begin:.0f} s", file=sys.stderr)
    print(table(shown))
    print(f"logs of the servers: {bench.logs}", file=sys.stderr)


def _record(path: Path, section: str, rows: list[Row | Missing], raw: dict[str, Any]) -> None:
    known = json.loads(path.read_text()) if path.exists() else {}
    known.setdefault("sections", {})[section] = {
        "machine": machine_facts(),
        "rows": [row.to_json() for row in rows],
        "runs": dict(raw),
    }
    raw.clear()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
