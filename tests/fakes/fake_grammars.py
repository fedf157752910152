"""A grammar library that the test plays: compiles when it is told to, matches by counting."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from octavo.messages.grammar import Grammar, Vocabulary
from octavo.structured_output.backend import GrammarError, MaskRow, Matcher


@dataclass
class FakeMatcher:
    """Allows the tokens 0 to 31; complete after as many as the grammar's text has characters."""

    length: int
    fails_at: int | None
    accepted: list[int] = field(default_factory=list)
    handle: int = 0

    def fill_mask(self, mask: Any) -> None:
        if self.fails_at == len(self.accepted):
            raise GrammarError("too much work")
        mask[:] = 0
        mask[0] = 0xFFFFFFFF

    def accept(self, token_id: int) -> None:
        if token_id >= 32:
            raise GrammarError("token not allowed")
        self.accepted.append(token_id)

    @property
    def is_complete(self) -> bool:
        return len(self.accepted) >= self.length


class FakeMaskRow:
    """The mask is filled when its queue is waited for."""

    def __init__(self, matcher: Matcher, words: Any) -> None:
        assert isinstance(matcher, FakeMatcher)
        self._matcher = matcher
        self._words = words
        self._error: Exception | None = None

    def fill(self) -> None:
        try:
            self._matcher.fill_mask(self._words)
        except Exception as error:
            self._error = error

    def raise_error(self) -> None:
        if self._error is not None:
            raise self._error


class FakeMaskQueue:
    """`sizes` are the numbers of masks that were begun together."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.is_closed = False
        self.num_pauses = 0
        self._rows: list[MaskRow] = []

    def row(self, matcher: Matcher, words: Any) -> FakeMaskRow:
        return FakeMaskRow(matcher, words)

    def add(self, rows: Sequence[MaskRow]) -> None:
        self._rows += rows
        self.sizes.append(len(rows))

    def pause(self) -> None:
        self.num_pauses += 1

    def wait(self) -> None:
        for row in self._rows:
            assert isinstance(row, FakeMaskRow)
            row.fill()
        self._rows.clear()

    def close(self) -> None:
        self.is_closed = True


@dataclass
class FakeCompiled:
    length: int
    fails_at: int | None

    learned: list[Matcher] = field(default_factory=list)

    def start(self) -> FakeMatcher:
        return FakeMatcher(self.length, self.fails_at)

    def learn(self, ended: Matcher) -> None:
        self.learned.append(ended)


class FakeBackend:
    """`compiled` and `checked` list what was asked for. Waits for `gate` in `compile`. A text that
    begins with "bad" is a mistake, one with "bug" fails in another way."""

    def __init__(
        self, vocabulary: Vocabulary | None = None, *, fails_at: int | None = None
    ) -> None:
        self.vocabulary = vocabulary
        self.compiled: list[str] = []
        self.checked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()
        self.fails_at = fails_at
        self.made: type[FakeCompiled] = FakeCompiled
        self.queue = FakeMaskQueue()

    @property
    def matcher_calls(self) -> tuple[int, int]:
        return (1, 2)

    def mask_queue(self) -> FakeMaskQueue:
        return self.queue

    def compile(self, grammar: Grammar) -> FakeCompiled:
        self.compiled.append(grammar.text)
        self.begun.set()
        assert self.gate.wait(5)
        if grammar.text.startswith("bad"):
            raise GrammarError("it is bad")
        if grammar.text.startswith("bug"):
            raise ZeroDivisionError("a bug")
        return self.made(len(grammar.text), self.fails_at)

    def check(self, grammar: Grammar) -> None:
        self.checked.append(grammar.text)
        self.compile(grammar)
