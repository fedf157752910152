"""Where an output's reasoning is: a grammar holds only outside of it.

A reply that begins inside of reasoning is free up to the mark that ends it. One that may begin with
reasoning is free after a first token that is the mark of its beginning, and else constrained from
the first token. No end token is drawn while the reasoning goes on: the answer is still to come.
A budget ends it: then only the mark may be drawn that ends it, token by token.

Used by: `request_grammars.py`. Runs in: EngineCore. Owns: the place in one output.
Knows nothing of: grammars, requests.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.sampling_params import ReasoningMarks
from octavo.structured_output.backend import GrammarError
from octavo.structured_output.token_texts import TokenTexts

Words = npt.NDArray[np.uint32]


class ReasoningGate:
    """See the module.

    Args:
        tokens: of the model; shared by all outputs.
        marks: of the request.
    """

    __slots__ = (
        "_begin_ids", "_budget", "_end_ids", "_ends", "_is_first", "_is_free", "_num_tokens",
        "_tail", "_tokens", "is_open",
    )  # fmt: skip

    def __init__(self, tokens: TokenTexts, marks: ReasoningMarks) -> None:
        self._tokens = tokens
        self._ends = [mark.encode() for mark in marks.end]
        self._tail = b""
        self.is_open: bool = marks.is_open
        self._is_first = not marks.is_open
        self._is_free = marks.is_free
        self._budget = marks.budget
        self._num_tokens = 0  # of reasoning
        self._end_ids: list[int] = []  # of the mark that ends it, found when it is needed
        self._begin_ids: list[int] = []
        if self._is_first:
            for mark in marks.begin:
                self._begin_ids += tokens.ids_of(mark.encode())

    @property
    def widens(self) -> bool:
        """True if more is allowed now than the grammar allows."""
        return self.is_open or self._is_first

    def takes(self, token_id: int) -> bool:
        """Takes the next token of the output; True if it is none of the grammar's.

        Raises:
            GrammarError: a token holds the end of the reasoning and the beginning of the answer.
        """
        if self._is_first:
            self._is_first = False
            self.is_open = token_id in self._begin_ids
            return self.is_open
        if not self.is_open:
            return False
        text = self._tail + self._tokens.text_of(token_id)
        ends = [place + len(mark) for mark in self._ends if (place := text.find(mark)) >= 0]
        if ends:
            self.is_open = False
            if text[min(ends) :].strip() and not self._is_free:
                raise GrammarError("one token ends the reasoning and begins the answer")
        self._tail = text[-max(map(len, self._ends)) :]
        self._num_tokens += 1
        return True

    def widen(self, mask: Words) -> None:
        """Adds the tokens of reasoning to the mask of the grammar, which is without meaning inside
        of reasoning."""
        if self.is_open and self._budget is not None and self._num_tokens >= self._budget:
            token_id = self._end_id(self._num_tokens - self._budget)
            mask[:] = 0
            mask[token_id // 32] = np.uint32(1 << token_id % 32)
        elif self.is_open:
            mask[:] = 0xFFFFFFFF
            for token_id in self._tokens.eos_token_ids:
                mask[token_id // 32] &= np.uint32(0xFFFFFFFF ^ (1 << token_id % 32))
        elif self._is_first:
            for token_id in self._begin_ids:
                mask[token_id // 32] |= np.uint32(1 << token_id % 32)

    def _end_id(self, index: int) -> int:
        """A token of the mark that ends the reasoning; those before it have been drawn."""
        if not self._end_ids:
            try:
                self._end_ids = self._tokens.spell(self._ends[0])
            except ValueError as error:
                raise GrammarError(f"the reasoning cannot be ended: {error}") from None
        return self._end_ids[index]
