"""Counts the tokens of a choice that are reasoning, without those of its marks.

It goes by tokens, not by text: a whole reply gives the same number as its stream, however that is
cut. Where a mark is no token of its own, its tokens but the last count.

Used by: `octavo/api/assembler.py` (`TokenCounter`). Runs in: API process. Owns: the place in one
choice. Knows nothing of: parsers, wire formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from octavo.sampling_params import ReasoningMarks


class TokenNames(Protocol):
    """What is needed of a tokenizer."""

    def token_to_id(self, token: str, /) -> int | None: ...

    def id_to_token(self, token_id: int, /) -> str | None: ...

    def token_bytes(self, token_id: int, /) -> bytes: ...

    @property
    def special_ids(self) -> frozenset[int]: ...


class ReasoningTokens:
    """See the module.

    Args:
        tokens: of the model.
        marks: of the reply's reasoning.
    """

    def __init__(self, tokens: TokenNames, marks: ReasoningMarks) -> None:
        self._tokens = tokens
        self._begin_ids = {tokens.token_to_id(mark) for mark in marks.begin} - {None}
        end_ids = [tokens.token_to_id(mark) for mark in marks.end]
        self._end_ids = frozenset(end_ids)
        self._ends = [mark.encode() for mark in marks.end]
        self._has_end_ids = None not in end_ids
        self._is_open = marks.is_open
        self._tail = b""
        self.num_tokens = 0

    def see(self, token_ids: Sequence[int]) -> None:
        """Takes the next tokens."""
        place = 0
        while place < len(token_ids):
            if self._is_open:
                end = self._end(token_ids, place)
                self._is_open = end == len(token_ids)
                self.num_tokens += end - place
                place = end + 1
            else:
                begin = _first(token_ids, place, self._begin_ids)
                self._is_open = begin < len(token_ids)
                place = begin + 1

    def _end(self, token_ids: Sequence[int], place: int) -> int:
        """Where the token is that ends the reasoning; behind the last one if none does."""
        if self._has_end_ids:
            return _first(token_ids, place, self._end_ids)
        for index in range(place, len(token_ids)):
            self._tail += self._text_of(token_ids[index])
            if any(mark in self._tail for mark in self._ends):
                self._tail = b""
                return index
            self._tail = self._tail[-max(map(len, self._ends)) :]
        return len(token_ids)

    def _text_of(self, token_id: int) -> bytes:
        if token_id in self._tokens.special_ids:
            return (self._tokens.id_to_token(token_id) or "").encode()
        return self._tokens.token_bytes(token_id)


def _first(
    token_ids: Sequence[int], place: int, wanted: frozenset[int | None] | set[int | None]
) -> int:
    for index in range(place, len(token_ids)):
        if token_ids[index] in wanted:
            return index
    return len(token_ids)
