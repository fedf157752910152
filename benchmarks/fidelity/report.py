"""Rows as JSON, and as the tables of a Markdown page whose prose stays.

Knows nothing of: how rows are measured.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fidelity.measure import NUM_GREEDY_TOKENS
from benchmarks.fidelity.scores import Flip, Scores

FLIP_FIELDS = ("flips", "greedy_flips")
BEGIN, END = "<!-- begin of the tables -->\n", "<!-- end of the tables -->\n"


@dataclasses.dataclass(frozen=True)
class Row:
    """One route on one checkpoint.

    Attributes:
        kv_cache: element type of the cache.
        scores: None where only perplexity is known (another engine).
    """

    weights: str
    computed: str
    kv_cache: str
    perplexity: float
    ratio: float
    scores: Scores | None
    seconds: float


@dataclasses.dataclass(frozen=True)
class Part:
    """All rows of one model, and what a reader needs to judge them."""

    facts: dict[str, Any]
    rows: list[Row]


def merge_json(path: Path, model_to_part: Mapping[str, Part]) -> dict[str, Part]:
    """Writes these models' parts, keeps those of other models, and returns all.

    Flips are written as [where, expected, found, margin].
    """
    parts = {**(_read(path) if path.exists() else {}), **model_to_part}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{" + ",\n".join(_part_json(*item) for item in parts.items()) + "}\n")
    return parts


def _part_json(model: str, part: Part) -> str:
    lines = ",\n".join(json.dumps(_entry(row)) for row in part.rows)
    return f'{json.dumps(model)}: {{"facts": {json.dumps(part.facts)},\n"rows": [\n{lines}\n]}}'


def _entry(row: Row) -> dict[str, Any]:
    entry = dataclasses.asdict(row)
    if row.scores is not None:
        for name in FLIP_FIELDS:
            flips: list[Flip] = getattr(row.scores, name)
            entry["scores"][name] = [[*dataclasses.astuple(flip)] for flip in flips]
    return entry


def _read(path: Path) -> dict[str, Part]:
    return {
        model: Part(part["facts"], [_row(entry) for entry in part["rows"]])
        for model, part in json.loads(path.read_text()).items()
    }


def _row(entry: dict[str, Any]) -> Row:
    scores = entry.pop("scores")
    if scores is not None:
        flips = {name: [Flip(*values) for values in scores[name]] for name in FLIP_FIELDS}
        scores = Scores(**{**scores, **flips})
    return Row(**entry, scores=scores)


def write_markdown(path: Path, model_to_part: Mapping[str, Part]) -> None:
    """Puts the tables between the page's two marks.

    Raises:
        ValueError: the page has no marks.
    """
    page = path.read_text()
    if BEGIN not in page or END not in page:
        raise ValueError(f"{path} needs the lines {BEGIN!r} and {END!r}")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    tables = "\n\n".join(_section(model, part) for model, part in model_to_part.items())
    path.write_text(f"{before}{BEGIN}\n{tables}\n\n{END}{after}")


def _section(model: str, part: Part) -> str:
    facts = part.facts
    where = ", ".join(
        f"{name} {value}" for name, value in {**facts["machine"], **facts["versions"]}.items()
    )
    return "\n\n".join(
        (
            f"### {model}",
            _table(_HEAD, (_cells(row) for row in part.rows)),
            "Where the most likely token differs from that of fp32:",
            _table(
                _FLIP_HEAD,
                (_flip_cells(row) for row in part.rows if row.scores and row.scores.flips),
            ),
            f"{facts['places']} places, {facts['prompts']} prompts; {where}.",
        )
    )


_HEAD = (
    "weights",
    "computed by",
    "KV cache",
    "perplexity",
    "against fp32",
    "same most likely token",
    "divergence, nats",
    f"greedy tokens in common, of {NUM_GREEDY_TOKENS}",
)


def _cells(row: Row) -> list[str]:
    cells = [row.weights, row.computed, row.kv_cache, f"{row.perplexity:.3f}"]
    scores = row.scores
    if scores is None:
        return [*cells, f"{row.ratio - 1:+.2%}", "", "", ""]
    return [
        *cells,
        f"{row.ratio - 1:+.2%} +- {scores.ratio_error:.2%}",
        f"{scores.agreement:.2%}",
        f"{scores.divergence:.5f}",
        f"{scores.common_tokens:.1f}",
    ]


_FLIP_HEAD = (
    "weights",
    "computed by",
    "KV cache",
    "noise",
    "places",
    "margin: median",
    "largest",
    "margins at the first greedy difference of each prompt",
)


def _flip_cells(row: Row) -> list[str]:
    assert row.scores is not None
    margins = [flip.margin for flip in row.scores.flips]
    return [
        row.weights,
        row.computed,
        row.kv_cache,
        f"{row.scores.noise:.4f}",
        f"{len(margins)}",
        f"{np.median(margins):.3f}" if margins else "",
        f"{max(margins):.3f}" if margins else "",
        ", ".join(_margin(flip) for flip in row.scores.greedy_flips),
    ]


def _margin(flip: Flip) -> str:
    return f"{flip.margin:.3f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
