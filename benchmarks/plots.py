"""Pictures of the results: `python -m benchmarks.plots` writes docs/plots/*.svg (extra `bench`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

from benchmarks.peers.engines import ROOT

RESULTS = ROOT / "benchmarks" / "results"
FOLDER = ROOT / "docs" / "plots"
OURS, OTHERS = "#1f6fb4", "#b8b8b8"


def main() -> None:
    """Draws what there are results of."""
    # the same bytes for the same figures; text as text, so that it can be searched
    mpl.rcParams |= {"svg.hashsalt": "octavo", "svg.fonttype": "none", "font.size": 9}
    mpl.rcParams |= {"axes.spines.top": False, "axes.spines.right": False}
    FOLDER.mkdir(exist_ok=True)
    if (path := RESULTS / "peers.json").exists():
        draw_peers(json.loads(path.read_text())["sections"])
    if (path := RESULTS / "growth.json").exists():
        draw_growth(json.loads(path.read_text()))


def draw_peers(sections: dict[str, Any]) -> None:
    """Served throughput and latency of each engine: one panel per load."""
    runs = {name: of for section in sections.values() for name, of in section["runs"].items()}
    panels = [
        ("serve32", "out_tps", "32 streams: output tokens/s"),
        ("serve8", "out_tps", "8 streams: output tokens/s"),
        ("decode", "tpot_p50_ms", "1 stream: ms per token"),
        ("prefill", "ttft_p50_ms", "prompt of 4,000 characters: ms to first token"),
    ]
    there = [panel for panel in panels if panel[0] in runs]
    figure, axes = plt.subplots(len(there), 1, figsize=(7, 1.5 * len(there)), squeeze=False)
    for axis, (name, key, title) in zip(axes[:, 0], there, strict=True):
        bars = {
            engine: sorted(run[key] for run in of)[len(of) // 2]
            for engine, of in runs[name].items()
            if of and key in of[0]
        }
        colors = [OURS if engine.startswith("octavo") else OTHERS for engine in bars]
        drawn = axis.barh(list(bars), list(bars.values()), color=colors, height=0.7)
        axis.bar_label(drawn, fmt="%.4g", padding=3)
        axis.invert_yaxis()
        axis.margins(x=0.12)  # room for the figures
        axis.set_title(title, loc="left", fontsize=9)
        axis.xaxis.set_visible(False)
        axis.spines["bottom"].set_visible(False)
    _save(figure, "peers.svg")


def draw_growth(results: dict[str, Any]) -> None:
    """Curves: how speed changes with context, streams and size."""
    curves = [
        ("context", "tokens", "tpot_ms", "tokens of context", "ms per token"),
        ("streams", "streams", "out_tps", "streams", "output tokens/s"),
        ("start", "megabytes", "seconds", "MB of the file", "s to the first token"),
    ]
    there = [curve for curve in curves if curve[0] in results]
    figure, axes = plt.subplots(1, len(there), figsize=(3.2 * len(there), 2.6), squeeze=False)
    for axis, (name, x, y, x_label, y_label) in zip(axes[0], there, strict=True):
        points = results[name]["points"]
        xs, ys = [point[x] for point in points], [point[y] for point in points]
        axis.plot(xs, ys, marker="o", color=OURS)
        if name == "streams":
            axis.set_xscale("log", base=2)
            axis.set_xticks(xs, [str(count) for count in xs])
        axis.set_ylim(bottom=0)
        axis.set_xlabel(x_label)
        axis.set_ylabel(y_label)
    _save(figure, "growth.svg")


def _save(figure: Any, name: str) -> None:
    figure.tight_layout()
    path: Path = FOLDER / name
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")
    print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
