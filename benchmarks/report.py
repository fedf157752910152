"""Writes docs/performance.md and README's table from the results: `python -m benchmarks.report`.

Those of the machine measured last lie in benchmarks/results, those of others in folders there.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.peers.engines import ROOT
from benchmarks.peers.rows import Missing, Row, table

RESULTS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- begin: made by benchmarks.report -->\n", "<!-- end -->\n"
NAMES = {
    "octavo": "Octavo",
    "octavo int8 KV": "Octavo, int8 KV",
    "octavo bf16": "Octavo, bf16 weights",
    "llama.cpp": "llama-server",
    "ik_llama.cpp": "ik_llama.cpp",
    "vllm": "vLLM, bf16 weights",
    "openvino": "OpenVINO int4, no HTTP",
}
COLUMNS = (
    ("decode", "tpot_p50_ms", "1 stream, ms/token"),
    ("prefill", "ttft_p50_ms", "4,000 characters, ms to first token"),
    ("serve8", "out_tps", "8 streams, tok/s"),
    ("serve32", "out_tps", "32 streams, tok/s"),
    ("serve32", "pss_mb", "memory after it, MB"),
    ("start", "ready_s", "start, s"),
)


def main() -> None:
    """Fills the marked parts of README.md and docs/performance.md."""
    sections = _read(RESULTS / "peers.json")["sections"]
    fill("README.md", engines_table(sections) + "\n" + machine_line(sections))
    others = sorted(path.parent for path in RESULTS.glob("*/peers.json"))
    fill("docs/performance.md", "\n".join(machine_part(folder) for folder in [RESULTS, *others]))


def machine_part(folder: Path) -> str:
    """All tables of one machine."""
    sections = _read(folder / "peers.json")["sections"]
    parts = [f"### Level {machine_of(sections)['isa']}\n", machine_line(sections)]
    parts += [engines_table(sections), table(rows(sections)) + "\n"]
    if (growth := folder / "growth.json").exists():
        parts.append(growth_tables(_read(growth)))
    return "\n".join(parts)


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def fill(name: str, text: str) -> None:
    """Replaces what is between the marks of a page."""
    path = ROOT / name
    before, rest = path.read_text().split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(f"{before}{BEGIN}{text}{END}{after}")


def rows(sections: dict[str, Any]) -> list[Row | Missing]:
    """The targets' rows, in the order of the sections."""
    found: list[Row | Missing] = []
    for section in sections.values():
        for row in section["rows"]:
            if "why" in row:
                found.append(Missing(**row))
            else:
                fields = {k: v for k, v in row.items() if k not in ("ratio", "holds")}
                found.append(Row(**fields))
    return found


def engines_table(sections: dict[str, Any]) -> str:
    """Engines by loads; medians over the rounds."""
    runs: dict[str, Any] = {}
    for section in sections.values():
        runs |= section["runs"]
    lines = ["| | " + " | ".join(title for _, _, title in COLUMNS) + " |"]
    lines.append("|---" * (1 + len(COLUMNS)) + "|")
    for engine, shown in NAMES.items():
        cells = []
        for load, figure, _ in COLUMNS:
            of = [run[figure] for run in runs.get(load, {}).get(engine, ()) if figure in run]
            cells.append(f"{median(of):.3g}" if of and median(of) < 100 else _whole(of))
        if set(cells) != {"-"}:
            lines.append(f"| {shown} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _whole(values: list[float]) -> str:
    return f"{median(values):,.0f}" if values else "-"


def growth_tables(growth: dict[str, Any]) -> str:
    """The points of the curves."""
    shown = {
        "context": ("tokens", "tpot_ms", "tokens of context", "ms per token"),
        "streams": ("streams", "out_tps", "streams", "output tokens/s"),
        "start": ("megabytes", "seconds", "MB of the file", "s to the first token"),
    }
    tables = []
    for name, (x, y, x_label, y_label) in shown.items():
        points = growth[name]["points"]
        head = f"| {x_label} | " + " | ".join(f"{point[x]:.0f}" for point in points) + " |"
        line = f"| {y_label} | " + " | ".join(f"{point[y]:.3g}" for point in points) + " |"
        tables.append(f"{head}\n{'|---' * (1 + len(points))}|\n{line}\n")
    return "\n".join(tables)


def machine_of(sections: dict[str, Any]) -> dict[str, Any]:
    """Its facts, as the first section noted them."""
    facts: dict[str, Any] = next(iter(sections.values()))["machine"]
    return facts


def machine_line(sections: dict[str, Any]) -> str:
    """Where and when the figures are from."""
    facts = [section["machine"] for section in sections.values()]
    first = machine_of(sections)
    commits = sorted({fact["commit"] for fact in facts})
    return (
        f"{first['cpu']}, {first['cores']} cores, level {first['isa']}, {first['memory_gib']} GiB; "
        f"{max(fact['date'] for fact in facts)}, commits {', '.join(commits)}. Medians of the "
        "rounds of one run each.\n"
    )


if __name__ == "__main__":
    main()
