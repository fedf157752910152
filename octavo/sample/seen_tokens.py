"""The distinct ids of one request and how often it has generated each: what penalties look at.

Runs in: workers. Knows nothing of: tensors, other requests, text.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from octavo.ops.step import Int32Array


class SeenTokens:
    """Grows by one token at a time; reading it copies nothing.

    Args:
        prompt_token_ids: seen, with count 0.
        output_token_ids: seen, and counted.
    """

    def __init__(self, prompt_token_ids: Iterable[int], output_token_ids: Iterable[int]) -> None:
        prompt = np.unique(np.fromiter(prompt_token_ids, np.int32))
        self._num_ids = len(prompt)
        self._ids: Int32Array = np.zeros(len(prompt) + 256, np.int32)
        self._counts: Int32Array = np.zeros(len(prompt) + 256, np.int32)
        self._ids[: len(prompt)] = prompt
        self._id_to_index = {int(token_id): i for i, token_id in enumerate(prompt)}
        for token_id in output_token_ids:
            self.append(token_id)

    @property
    def ids(self) -> Int32Array:
        """[n] distinct ids, in no particular order."""
        return self._ids[: self._num_ids]

    @property
    def counts(self) -> Int32Array:
        """[n] how often each id was generated; 0: it is only in the prompt."""
        return self._counts[: self._num_ids]

    def append(self, token_id: int) -> None:
        """Counts one generated token."""
        index = self._id_to_index.get(token_id)
        if index is None:
            index = self._id_to_index[token_id] = self._num_ids
            if index == len(self._ids):
                self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
                self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
            self._ids[index] = token_id
            self._num_ids += 1
        self._counts[index] += 1
