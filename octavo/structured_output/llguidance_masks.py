"""Masks of llguidance's outputs, made by a native thread: it never waits for the interpreter.

Used by: `llguidance.py`. Runs in: EngineCore. Owns: the thread, and what it reads and writes.
Knows nothing of: requests, steps.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from octavo.ops.call_queue import CallQueue, packed_call
from octavo.ops.library import load_library
from octavo.structured_output.backend import MaskRow, Matcher
from octavo.structured_output.llguidance import LlguidanceMatcher

if TYPE_CHECKING:
    from octavo.structured_output.backend import Words


class LlguidanceMaskQueue:
    """See `MaskQueue`.

    Args:
        function: address of `llg_matcher_compute_mask_into`.
    """

    def __init__(self, function: int) -> None:
        self._function = function
        self._calls = CallQueue(load_library(), "octavo-masks")
        self._lock = threading.Lock()
        self._pending: list[Sequence[MaskRow]] = []  # keeps what the thread reads and writes

    def row(self, matcher: Matcher, words: Words) -> LlguidanceMaskRow:
        assert isinstance(matcher, LlguidanceMatcher)
        return LlguidanceMaskRow(self._function, matcher, words)

    def add(self, rows: Sequence[MaskRow]) -> None:
        with self._lock:
            self._pending.append(rows)
        self._calls.add([row.call for row in rows if isinstance(row, LlguidanceMaskRow)])

    def pause(self) -> None:
        self._calls.pause()

    def wait(self) -> None:
        with self._lock:
            done, self._pending = self._pending, []
        self._calls.wait()
        del done

    def close(self) -> None:
        self._calls.close()


class LlguidanceMaskRow:
    """See `MaskRow`."""

    __slots__ = ("_matcher", "_result", "_words", "call")

    def __init__(self, function: int, matcher: LlguidanceMatcher, words: Words) -> None:
        self._matcher = matcher
        self._words = words
        self._result = np.zeros(1, np.int32)
        addresses = words.ctypes.data, words.nbytes, self._result.ctypes.data
        self.call = packed_call(function, matcher.handle, *addresses)

    def raise_error(self) -> None:
        if self._result[0]:
            self._matcher.raise_error()
