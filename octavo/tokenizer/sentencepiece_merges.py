"""The merges that a SentencePiece BPE vocabulary implies but does not list.

Gemma's 262,144 tokens can be cut in 1.2 million places, and half a million of the cuts give two
tokens. Tried one by one in Python that takes a second; here all cuts are tried at once, by hashes
of their two sides.

numpy is imported by this file alone in the API process, so it is imported late by whoever needs it.

Runs in: the API process. Owns: the search. Knows nothing of: files, the tokenizers library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
Ids = npt.NDArray[np.int64]

#: odd, so that it has an inverse modulo 2**64 (of PCG, a multiplier that mixes well)
_BASE: Final = 6364136223846793005
_INVERSE: Final = pow(_BASE, -1, 1 << 64)
_CHARACTER_SALT: Final = np.uint64(0x9E3779B97F4A7C15)
_SLOT_BITS: Final = 22  # 16 MB, one slot in sixteen taken by Gemma


def merges_from_scores(
    tokens: Sequence[str], scores: Sequence[float] | None
) -> list[tuple[str, str]]:
    """Each way to make a token of two others: best score first, longer parts first among equals.

    Args:
        tokens: the vocabulary, each token once.
        scores: of the tokens; None: tokens are sorted by score already, best first.

    Source: transformers' generate_merges.
    """
    whole, left, right, cut = _splits(tokens)
    if scores is not None:
        lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
        order = np.lexsort((cut - lengths[whole], -cut, -np.asarray(scores)[whole]))
        left, right = left[order], right[order]
    get = tokens.__getitem__
    return list(zip(map(get, left.tolist()), map(get, right.tolist()), strict=True))


def _splits(tokens: Sequence[str]) -> tuple[Ids, Ids, Ids, Ids]:
    """Token, left part, right part (indices) and length of the left part, of all cuts whose sides
    are tokens; by token, the longest left part first.

    Equal hashes count as equal texts: of two million texts, two different ones share a 64-bit hash
    once in ten million vocabularies.
    """
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    ends = np.cumsum(lengths)
    starts = ends - lengths
    prefix, inverse = _prefix_sums("".join(tokens))

    def hashes(start: Ids, end: Ids) -> U64:
        return (prefix[end] - prefix[start]) * inverse[start]

    table = _Table(hashes(starts, ends))
    num_cuts = np.maximum(lengths - 1, 0)
    whole = np.repeat(np.arange(len(tokens)), num_cuts)
    left_lengths = np.repeat(np.cumsum(num_cuts), num_cuts) - np.arange(len(whole))
    position = starts[whole] + left_lengths
    left = table.find(hashes(starts[whole], position))
    found = left >= 0
    whole, position, left = whole[found], position[found], left[found]
    right = table.find(hashes(position, ends[whole]))
    found = right >= 0
    whole, position, left, right = whole[found], position[found], left[found], right[found]
    return whole, left, right, position - starts[whole]


def _prefix_sums(text: str) -> tuple[U64, U64]:
    """Sums s and factors f such that (s[j] - s[i]) * f[i] is a hash of text[i:j] wherever it is.
    All arithmetic is modulo 2**64."""
    characters: U64 = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype("u8")
    values = (characters + np.uint64(1)) * _CHARACTER_SALT
    values ^= values >> np.uint64(29)
    sums = np.zeros(len(values) + 1, np.uint64)
    np.cumsum(values * _powers(_BASE, len(values))[:-1], out=sums[1:])
    return sums, _powers(_INVERSE, len(values))


def _powers(base: int, count: int) -> U64:
    powers: U64 = np.full(count + 1, base, np.uint64)
    powers[0] = 1
    return np.cumprod(powers, out=powers)


class _Table:
    """Where a hash is in a list of hashes: one look into a table of slots; hashes whose slot was
    taken (one in thirty) are searched."""

    def __init__(self, hashes: U64) -> None:
        self._hashes = hashes
        slots = self._slots(hashes)
        self._ids = np.full(1 << _SLOT_BITS, -1, np.int32)
        self._ids[slots] = np.arange(len(hashes))  # of several, the last stays
        crowded_out = np.flatnonzero(self._ids[slots] != np.arange(len(hashes)))
        self._others = crowded_out[np.argsort(hashes[crowded_out])]

    def find(self, hashes: U64) -> Ids:
        """Index of each hash in the list, -1 if it is not there."""
        ids = self._ids[self._slots(hashes)].astype(np.int64)
        wrong = np.flatnonzero((ids >= 0) & (self._hashes[ids] != hashes))
        ids[wrong] = self._search(hashes[wrong])
        return ids

    def _search(self, hashes: U64) -> Ids:
        if not len(self._others):
            return np.full(len(hashes), -1, np.int64)
        places = np.searchsorted(self._hashes[self._others], hashes)
        found: Ids = self._others[np.minimum(places, len(self._others) - 1)]
        return np.where(self._hashes[found] == hashes, found, -1)

    def _slots(self, hashes: U64) -> Ids:
        return (hashes >> np.uint64(64 - _SLOT_BITS)).astype(np.int64)
