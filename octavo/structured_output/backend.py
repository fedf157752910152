"""What the rest of Octavo needs of a grammar library.

Implemented by: `llguidance.py`. Used by: `compiler.py`, `request_grammars.py`, `unfit.py`.
Runs in: EngineCore and the API process. Owns: nothing.
Knows nothing of: requests, threads, JSON schemas.
"""

from __future__ import annotations

from typing import Protocol

from octavo.messages.grammar import Grammar


class GrammarError(Exception):
    """A grammar cannot be used; the sentence is for who wrote it."""


class Matcher(Protocol):
    """How far one output has come in its grammar. One thread at a time."""

    def fill_mask(self, address: int, num_bytes: int) -> None:
        """Writes the bit mask of the tokens that may come next: [ceil(vocab_size / 32)] words, a
        set bit is allowed, the lowest id in bit 0.

        Raises:
            GrammarError: that is too much work. The matcher cannot be used any more.
        """
        ...

    def accept(self, token_id: int) -> None:
        """Takes the next token of the output.

        Raises:
            GrammarError: the grammar does not allow it.
        """
        ...

    @property
    def is_complete(self) -> bool:
        """True if the output satisfies the grammar and nothing can follow."""
        ...


class CompiledGrammar(Protocol):
    """A grammar and a vocabulary, ready to match outputs."""

    def start(self) -> Matcher:
        """A new output; shares nothing that changes."""
        ...


class GrammarBackend(Protocol):
    """A grammar library with a vocabulary. Every method: any thread, without the interpreter's
    lock."""

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """
        Raises:
            GrammarError: it has mistakes, asks for what is not supported, or is too large.
        """
        ...

    def check(self, grammar: Grammar) -> None:
        """As `compile`, in half the time, for who needs only the error."""
        ...
