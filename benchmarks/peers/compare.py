"""Two or more servers side by side in one run: each is started, loaded and stopped in turn.

    python -m benchmarks.peers.compare --scenario serve32 --rounds 3 \\
        "octavo=octavo serve MODEL --port {port}" "llama=llama-server -m MODEL --port {port}"

Ready means that one generated token came back; memory is the PSS of all processes, read after the
load. Ratios are first/other: above 1 is better for rates, below 1 for times. Absolute figures drift
between machines and hours; ratios of one run are what counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.scenarios import SCENARIOS, Contender, measure


def rounds(
    contenders: Mapping[Contender, Sequence[str]],
    *,
    count: int,
    logs: Path,
    limit_s: float = 300.0,
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Figures by scenario and name of contender, one entry per round.

    Args:
        contenders: with the scenarios that each goes through, in order, on one server per round.
            Who begins changes from round to round.
        count: rounds; their seeds differ.
        limit_s: for a start and for a load.
    """
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
    everyone = list(contenders)
    for number in range(count):
        first = number % len(everyone)
        for contender in [*everyone[first:], *everyone[:first]]:
            found = measure(
                contender, contenders[contender], seed=number, logs=logs, limit_s=limit_s
            )
            for name, figures in found.items():
                runs.setdefault(name, {}).setdefault(contender.name, []).append(figures)
                shown = {figure: figures[figure] for figure in SCENARIOS[name].figures}
                print(f"  {name} round {number + 1} {contender.name}: {shown}", file=sys.stderr)
    return runs


def median(runs: Sequence[dict[str, Any]], figure: str) -> float:
    """Of one figure over the rounds."""
    return float(statistics.median(run[figure] for run in runs))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("servers", nargs="+", metavar="NAME=COMMAND")
    parser.add_argument("--scenario", choices=SCENARIOS, default="serve32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit-s", type=float, default=300.0, help="for a start and for a load")
    parser.add_argument("--model", default="m", help="model name put in each request")
    parser.add_argument("--logs", type=Path, default=Path("."), help="folder of the servers' logs")
    parser.add_argument("--json", type=Path, help="where all figures go")
    args = parser.parse_args()
    contenders = [
        Contender(name, command, args.model)
        for name, command in (server.split("=", 1) for server in args.servers)
    ]
    runs = rounds(
        {contender: [args.scenario] for contender in contenders},
        count=args.rounds,
        logs=args.logs,
        limit_s=args.limit_s,
    )[args.scenario]
    if args.json:
        args.json.write_text(json.dumps(runs, indent=1))
    figures = dict.fromkeys((*SCENARIOS[args.scenario].figures, "ready_s", "pss_mb"))
    first = contenders[0].name
    for name, of_name in runs.items():
        values = "  ".join(f"{figure} {median(of_name, figure):g}" for figure in figures)
        print(f"{args.scenario} {name}: {values}")
        if name != first:
            ratios = "  ".join(
                f"{figure} {median(runs[first], figure) / median(of_name, figure):.2f}"
                for figure in figures
                if median(of_name, figure)
            )
            print(f"{args.scenario} {first} / {name}: {ratios}")


if __name__ == "__main__":
    main()
