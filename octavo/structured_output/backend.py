"""What the rest of Octavo needs of a grammar library.

Implemented by: `llguidance.py`. Used by: `compiler.py`, `request_grammars.py`, `unfit.py`.
Runs in: EngineCore and the API process. Owns: nothing.
Knows nothing of: requests, threads, JSON schemas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from octavo.messages.grammar import Grammar

if TYPE_CHECKING:  # the API process does without numpy
    import numpy as np
    import numpy.typing as npt

    #: bits of masks: [..., ceil(vocab_size / 32)], a set bit is allowed, the lowest id in bit 0
    Words = npt.NDArray[np.uint32]


class GrammarError(Exception):
    """A grammar cannot be used; the sentence is for who wrote it."""


class Matcher(Protocol):
    """How far one output has come in its grammar. One thread at a time.

    Attributes:
        handle: for `GrammarBackend.matcher_calls`; 0 if it cannot be asked in this way.
    """

    @property
    def handle(self) -> int: ...

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


class MaskRow(Protocol):
    """Where the masks of one output are written."""

    def raise_error(self) -> None:
        """After `MaskQueue.wait`, about the last mask.

        Raises:
            GrammarError: it was too much work. The matcher cannot be used any more, and what was
                written has no meaning.
        """
        ...


class MaskQueue(Protocol):
    """Masks, made one after another by a thread of their own. Any thread may add and wait."""

    def row(self, matcher: Matcher, words: Words) -> MaskRow:
        """Of an output that will get masks.

        Args:
            words: [ceil(vocab_size / 32)], in one piece.
        """
        ...

    def add(self, rows: Sequence[MaskRow]) -> None:
        """Begins to write what may come next of each output. Until `wait` has returned their
        matchers take no token, and the words are nobody else's."""
        ...

    def pause(self) -> None:
        """No further mask is begun until somebody waits."""
        ...

    def wait(self) -> None:
        """Returns when all masks added so far have been written."""
        ...

    def close(self) -> None:
        """Ends the thread, after what is left."""
        ...


class CompiledGrammar(Protocol):
    """A grammar and a vocabulary, ready to match outputs."""

    def start(self) -> Matcher:
        """A new output; shares nothing that changes."""
        ...

    def learn(self, ended: Matcher) -> None:
        """An output has ended, complete or not, and its matcher is given up: what it has found out
        about the grammar may help those that start later."""
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

    @property
    def matcher_calls(self) -> tuple[int, int]:
        """Addresses of C functions about a matcher's handle, `ov_matcher_calls`."""
        ...

    def mask_queue(self) -> MaskQueue:
        """A new one, for matchers of this backend."""
        ...
