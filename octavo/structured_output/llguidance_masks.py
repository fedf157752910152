"""Masks of llguidance's outputs, made by a native thread: it never waits for the interpreter.

Used by: `llguidance.py`. Runs in: EngineCore. Owns: the thread, and what it reads and writes.
Knows nothing of: requests, steps.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from octavo.ops.call_queue import CALL, CallQueue
from octavo.ops.library import load_library
from octavo.structured_output.backend import Matcher
from octavo.structured_output.llguidance import LlguidanceMatcher


class LlguidanceMaskQueue:
    """See `MaskQueue`.

    Args:
        function: address of `llg_matcher_compute_mask_into`.
    """

    def __init__(self, function: int) -> None:
        self._function = function
        self._calls = CallQueue(load_library(), "octavo-masks")
        self._lock = threading.Lock()
        self._batches: list[LlguidanceMaskBatch] = []  # keeps what the thread reads and writes

    def add(
        self, matchers: Sequence[Matcher], rows: np.ndarray[Any, Any], indices: Sequence[int]
    ) -> LlguidanceMaskBatch:
        batch = LlguidanceMaskBatch(matchers, rows)
        results, row_bytes = batch.results, rows.strides[0]
        calls = np.empty((len(matchers), len(CALL)), np.uint64)
        calls[:, CALL.index("function")] = self._function
        calls[:, CALL.index("object")] = [matcher.handle for matcher in batch.matchers]
        calls[:, CALL.index("data")] = rows.ctypes.data + row_bytes * np.array(indices)
        calls[:, CALL.index("bytes")] = row_bytes
        calls[:, CALL.index("result")] = results.ctypes.data + results.itemsize * np.arange(
            len(results)
        )
        with self._lock:
            self._batches.append(batch)
        self._calls.add(calls)
        return batch

    def pause(self) -> None:
        self._calls.pause()

    def wait(self) -> None:
        with self._lock:
            done, self._batches = self._batches, []
        self._calls.wait()
        del done

    def close(self) -> None:
        self._calls.close()


class LlguidanceMaskBatch:
    """See `MaskBatch`."""

    def __init__(self, matchers: Sequence[Matcher], rows: np.ndarray[Any, Any]) -> None:
        self.matchers = [m for m in matchers if isinstance(m, LlguidanceMatcher)]
        self.results = np.zeros(len(matchers), np.int32)
        self._rows = rows

    @property
    def has_errors(self) -> bool:
        return bool(self.results.any())

    def raise_error(self, place: int) -> None:
        """See `MaskBatch`."""
        if self.results[place]:
            self.matchers[place].raise_error()
