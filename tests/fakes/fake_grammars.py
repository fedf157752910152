"""A grammar library that the test plays: compiles when it is told to, matches by counting."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, field

from octavo.messages.grammar import Grammar, Vocabulary
from octavo.structured_output.backend import GrammarError


@dataclass
class FakeMatcher:
    """Allows the tokens 0 to 31; complete after as many as the grammar's text has characters."""

    length: int
    fails_at: int | None
    accepted: list[int] = field(default_factory=list)

    def fill_mask(self, address: int, num_bytes: int) -> None:
        if self.fails_at == len(self.accepted):
            raise GrammarError("too much work")
        ctypes.memset(address, 0, num_bytes)
        ctypes.memset(address, 0xFF, 4)

    def accept(self, token_id: int) -> None:
        if token_id >= 32:
            raise GrammarError("token not allowed")
        self.accepted.append(token_id)

    @property
    def is_complete(self) -> bool:
        return len(self.accepted) >= self.length


@dataclass
class FakeCompiled:
    length: int
    fails_at: int | None

    def start(self) -> FakeMatcher:
        return FakeMatcher(self.length, self.fails_at)


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
