"""What is added to single logits before a token is chosen: biases, and bans as -inf.

One object per feature and request behind the `LogitBias` seam; `logit_biases` makes those that a
request's parameters ask for (usually none).

Runs in: workers. Knows nothing of: tensors, other requests, text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from octavo.ops.step import Float32Array, Int32Array
from octavo.sampling_params import SamplingParams

BAN = float("-inf")


class Entries(NamedTuple):
    """What is added to which logits. Arrays, because `logit_bias` may name the whole vocabulary,
    and they are read in every step."""

    ids: Int32Array  # [n] token ids
    values: Float32Array  # [n] added to their logits


def _entries(ids: Iterable[int], values: Iterable[float] | float) -> Entries:
    found = np.fromiter(ids, np.int32)
    if isinstance(values, float):
        return Entries(found, np.full(len(found), values, np.float32))
    return Entries(found, np.fromiter(values, np.float32))


_NONE = _entries((), BAN)


class LogitBias(Protocol):
    """One reason to move logits of one request."""

    def entries(self) -> Entries:
        """For the next token."""
        ...

    def append(self, token_id: int) -> None:
        """Tells that the request has generated `token_id`."""
        ...


class FixedBias:
    """`logit_bias`: the same for every token."""

    def __init__(self, token_id_to_bias: Mapping[int, float]) -> None:
        self._entries = _entries(token_id_to_bias.keys(), token_id_to_bias.values())

    def entries(self) -> Entries:
        return self._entries

    def append(self, token_id: int) -> None:
        pass


class MinTokens:
    """`min_tokens`: what would end the request is banned until enough tokens are generated."""

    def __init__(self, min_tokens: int, ending_ids: Iterable[int]) -> None:
        self._num_missing = min_tokens
        self._entries = _entries(sorted(set(ending_ids)), BAN)

    def entries(self) -> Entries:
        return self._entries if self._num_missing > 0 else _NONE

    def append(self, token_id: int) -> None:
        self._num_missing -= 1


class BadWords:
    """`bad_words`: the last token of a word is banned when all tokens before it were generated."""

    def __init__(self, words: Sequence[Sequence[int]]) -> None:
        self._words = [list(word) for word in words if word]
        self._max_prefix = max((len(word) for word in self._words), default=1) - 1
        self._history: list[int] = []  # the last max_prefix generated tokens

    def entries(self) -> Entries:
        return _entries(self._completions(), BAN)

    def append(self, token_id: int) -> None:
        self._history.append(token_id)
        if len(self._history) > self._max_prefix:
            del self._history[0]

    def _completions(self) -> Iterable[int]:
        for word in self._words:
            prefix = word[:-1]
            if not prefix or self._history[-len(prefix) :] == prefix:
                yield word[-1]


def logit_biases(params: SamplingParams, eos_token_ids: Sequence[int]) -> list[LogitBias]:
    """The biases that `params` ask for, before any token is generated.

    Args:
        eos_token_ids: end the request, unless `params.ignore_eos`.
    """
    biases: list[LogitBias] = []
    if params.logit_bias:
        biases.append(FixedBias(params.logit_bias))
    if params.bad_words_token_ids:
        biases.append(BadWords(params.bad_words_token_ids))
    if params.min_tokens > 0:
        ending_ids = [] if params.ignore_eos else list(eos_token_ids)
        biases.append(MinTokens(params.min_tokens, ending_ids + (params.stop_token_ids or [])))
    return biases
