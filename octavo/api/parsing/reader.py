"""Text that comes in cuts, read as if it were all there: `Reader`.

Parsers are generators over a reader. Where text is missing they yield, and go on when `add` or
`end` has been called; no decision is made on a beginning, so results do not depend on the cuts.

Runs in: API process. Owns: the text that was not used yet, and the text that may have to be given
back. Knows nothing of: marks' meanings, pieces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import TypeVar

from octavo.api.parsing.marks import MarkSet, Pending

_T = TypeVar("_T")

#: a step of a parser: yields where it needs more text, returns what it found
Steps = Generator[None, None, _T]

_SPACE = re.compile(r"\s*")


class Malformed(Exception):
    """The text is not of the form that is being read; it was read up to where that shows."""


class Reader:
    """See the module. What is not used is short (a beginning of a mark), whatever has come."""

    __slots__ = ("_divert", "_held", "ended", "position", "text")

    def __init__(self) -> None:
        #: what has come; used up to `position`
        self.text = ""
        self.position = 0
        #: nothing more will come
        self.ended = False
        self._held: list[str] | None = None
        self._divert: Callable[[str], None] | None = None

    def add(self, text: str) -> None:
        """More text."""
        self.text = self.text[self.position :] + text
        self.position = 0

    def end(self) -> None:
        """The text is complete."""
        self.ended = True

    def take(self, end: int) -> str:
        """Uses the text up to a place in `text`."""
        taken = self.text[self.position : end]
        self.position = end
        if self._held is not None:
            self._held.append(taken)
        elif self._divert is not None:
            self._divert(taken)
        return taken

    def hold(self) -> None:
        """From now on what is used is remembered."""
        self._held = []

    def divert(self, emit: Callable[[str], None]) -> None:
        """Gives what is remembered to `emit`, and then what is used, until `release`."""
        emit(self.release())
        self._divert = emit

    def release(self) -> str:
        """What was used since `hold` and not given to somebody; ends it."""
        held = "".join(self._held) if self._held is not None else ""
        self._held = self._divert = None
        return held

    def more(self) -> Steps[bool]:
        """Waits for a character; False if the text has ended."""
        while self.position == len(self.text):
            if self.ended:
                return False
            yield
        return True

    def peek(self) -> Steps[str]:
        """The next character, not used; nothing at the end."""
        if not (yield from self.more()):
            return ""
        return self.text[self.position]

    def space(self, also: str = "") -> Steps[str]:
        """Uses whitespace and the characters of `also`."""
        taken: list[str] = []
        while (yield from self.more()):
            match = _SPACE.match(self.text, self.position)
            assert match is not None
            end = match.end()
            if end < len(self.text) and self.text[end] in also:
                end += 1
            elif end == self.position:
                break
            taken.append(self.take(end))
        return "".join(taken)

    def mark(self, marks: MarkSet) -> Steps[str | None]:
        """Uses the mark that stands here; None if none does."""
        found = yield from self.find(marks)
        if found is not None:
            self.take(self.position + len(found))
        return found

    def drop_beginning(self, marks: MarkSet) -> bool:
        """Uses the rest of a text that was cut off within a mark."""
        rest = self.text[self.position :]
        if not (self.ended and rest and marks.may_begin(rest)):
            return False
        self.take(len(self.text))
        return True

    def find(self, marks: MarkSet) -> Steps[str | None]:
        """The mark that stands here, not used."""
        while True:
            found = marks.match(self.text, self.position, self.ended)
            if not isinstance(found, Pending):
                return found
            yield

    def character(self, expected: str) -> Steps[None]:
        """Uses one character.

        Raises:
            Malformed: it is another one, or the end.
        """
        if (yield from self.peek()) != expected:
            raise Malformed
        self.take(self.position + 1)

    def run(self, pattern: re.Pattern[str], limit: int) -> Steps[str]:
        """Uses the characters that a pattern of one character matches.

        Raises:
            Malformed: there are more than `limit`.
        """
        taken = ""
        while (yield from self.more()):
            if pattern.match(self.text, self.position) is None:
                break
            if len(taken) == limit:
                raise Malformed
            taken += self.take(self.position + 1)
        return taken

    def until(self, marks: MarkSet) -> Steps[tuple[str, str | None]]:
        """Uses the text before the next mark, and gives it with the mark, which is not used; None:
        the text has ended before."""
        taken: list[str] = []
        while True:
            place, found = marks.search(self.text, self.position, self.ended)
            taken.append(self.take(place))
            if found is not None or self.ended:
                return "".join(taken), found
            yield
