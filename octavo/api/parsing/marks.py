"""Sets of fixed texts (marks) and where one of them stands, in text that comes piece by piece.

Runs in: API process. Owns: when a mark is certain. Knows nothing of: what marks mean.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from typing import Final


class Pending(enum.Enum):
    """More text is needed to tell."""

    PENDING = enum.auto()


PENDING: Final = Pending.PENDING


class MarkSet:
    """Some marks. The longest that fits at a place counts.

    Finding costs a constant per character, whatever the text: two characters are compared by a
    compiled expression before anything else is looked at.
    """

    __slots__ = ("_beginnings", "_candidate", "_lengths", "_longest", "marks")

    def __init__(self, marks: Iterable[str]) -> None:
        self.marks = frozenset(marks)
        assert "" not in self.marks, "an empty mark"
        self._lengths = sorted({len(mark) for mark in self.marks}, reverse=True)
        self._longest = max(self._lengths, default=0)
        self._beginnings = frozenset(
            mark[:length] for mark in self.marks for length in range(len(mark))
        )
        self._candidate = re.compile(_candidate_pattern(self.marks))

    def match(self, text: str, position: int, ended: bool) -> str | Pending | None:
        """The mark at a position; None if there is none; PENDING if text that follows decides.

        Args:
            ended: no text follows.
        """
        rest = text[position : position + self._longest]
        if not ended and rest in self._beginnings:
            return PENDING
        for length in self._lengths:
            if rest[:length] in self.marks:
                return rest[:length]
        return None

    def may_begin(self, text: str) -> bool:
        """True if a mark begins with the text and is longer."""
        return text in self._beginnings

    def search(self, text: str, position: int, ended: bool) -> tuple[int, str | None]:
        """Where the first mark is, and which; (place, None) if one possibly begins at that place,
        or if none is there and the place is the end of the text."""
        if not self.marks:
            return len(text), None
        for candidate in self._candidate.finditer(text, position):
            found = self.match(text, candidate.start(), ended)
            if found is PENDING:
                return candidate.start(), None
            if isinstance(found, str):
                return candidate.start(), found
        return len(text), None


def _candidate_pattern(marks: frozenset[str]) -> str:
    """First characters, each with the second ones that may follow it."""
    seconds: dict[str, set[str]] = {}
    for mark in marks:
        seconds.setdefault(mark[0], set()).add(mark[1:2])
    parts = []
    for first, following in sorted(seconds.items()):
        part = re.escape(first)
        if "" not in following:
            part += rf"(?=\Z|[{''.join(map(re.escape, sorted(following)))}])"
        parts.append(part)
    return "|".join(parts) or r"(?!)"
