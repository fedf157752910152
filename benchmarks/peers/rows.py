"""One line of the table of targets: what was measured, what is wanted, whether it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """A target and its measurement.

    Attributes:
        what: the row's name.
        ours, theirs: figures in `unit`; `theirs` is the peer's, or a limit.
        against: the peer, or the limit's name.
        wanted: the bound of ours / theirs.
        is_at_most: the ratio must not be above the bound (times, bytes); else not below (rates).
        spread: ours / theirs of each round, where there were several.
    """

    what: str
    ours: float
    theirs: float
    against: str
    unit: str
    wanted: float
    is_at_most: bool = False
    spread: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Ours to theirs."""
        return self.ours / self.theirs

    @property
    def holds(self) -> bool:
        """The target is met."""
        return self.ratio <= self.wanted if self.is_at_most else self.ratio >= self.wanted

    def to_json(self) -> dict[str, Any]:
        """For the results file."""
        return {**asdict(self), "ratio": self.ratio, "holds": self.holds}


@dataclass(frozen=True)
class Missing:
    """A row that could not be measured here, and why."""

    what: str
    why: str

    def to_json(self) -> dict[str, Any]:
        """For the results file."""
        return asdict(self)


def table(rows: Sequence[Row | Missing]) -> str:
    """Markdown."""
    lines = [
        "| what | Octavo | against | its figure | ratio | target | |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if isinstance(row, Missing):
            lines.append(f"| {row.what} | - | - | - | - | - | not measured: {row.why} |")
            continue
        sign = "<=" if row.is_at_most else ">="
        verdict = "holds" if row.holds else "MISSED"
        lines.append(
            f"| {row.what} | {row.ours:.4g} {row.unit} | {row.against} | {row.theirs:.4g} | "
            f"{row.ratio:.2f} | {sign} {row.wanted:g} | {verdict} |"
        )
    return "\n".join(lines)
