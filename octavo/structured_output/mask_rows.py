"""Memory for the masks of running requests: rows that are taken and given back.

Used by: `request_grammars.py`. Runs in: EngineCore. Owns: the memory.
Knows nothing of: who fills it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]

_FIRST_ROWS = 8


class MaskRows:
    """Rows of one length.

    Args:
        num_words: of a row.

    Attributes:
        words: [rows, num_words]; another array after `take` of the first row too many.
    """

    def __init__(self, num_words: int) -> None:
        self.words: Words = np.empty((_FIRST_ROWS, num_words), np.uint32)
        self._free = list(range(_FIRST_ROWS))
        self._copies = [self.words[:0], self.words[:0]]

    @property
    def is_full(self) -> bool:
        """The next `take` moves all rows."""
        return not self._free

    def take(self) -> int:
        """A row that nobody has, of any content."""
        if not self._free:
            count = len(self.words)
            self.words = np.concatenate([self.words, np.empty_like(self.words)])
            self._free = list(range(count, 2 * count))
        return self._free.pop()

    def give_back(self, row: int) -> None:
        """Ends the use of a row."""
        self._free.append(row)

    def copy(self, rows: Sequence[int]) -> Words:
        """These rows, in memory that stays as it is until the second call after this one: fresh
        memory costs more than the copy."""
        self._copies.reverse()
        copy = self._copies[0]
        if len(copy) < len(rows):
            copy = self._copies[0] = np.empty((len(self.words), self.words.shape[1]), np.uint32)
        return np.take(self.words, rows, axis=0, out=copy[: len(rows)], mode="clip")
