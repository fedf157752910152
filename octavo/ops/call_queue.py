"""C calls that a thread of its own makes while Python goes on: it never waits for the interpreter.

Used by: `octavo/structured_output/llguidance.py`. Runs in: EngineCore. Owns: the thread.
Knows nothing of: what is called.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.errors import EngineError
from octavo.ops.abi import OvQueuedCall
from octavo.ops.library import Library

#: columns of an array of calls: all fields have eight bytes
CALL = tuple(field[0] for field in OvQueuedCall._fields_)
CallArray = npt.NDArray[np.uint64]


class CallQueue:
    """Calls, begun in the order in which they are added. Any thread may add, pause and wait.

    Args:
        name: of the thread, at most 15 bytes.
    """

    def __init__(self, library: Library, name: str) -> None:
        self._library = library
        self._handle: int | None = library.ov_call_queue_create(name.encode())
        if self._handle is None:
            raise EngineError(f"no thread for {name}: {library.last_error()}")

    def add(self, calls: CallArray) -> None:
        """Each `function(object, data, bytes)`, `int32_t (*)(void*, void*, size_t)`, is written to
        its `result`. What the calls name must stay until `wait` has returned; the array itself need
        not.

        Args:
            calls: [n, len(CALL)].
        """
        self._library.ov_call_queue_add(self._handle, len(calls), calls.ctypes.data)

    def pause(self) -> None:
        """Nothing more is called until somebody waits."""
        self._library.ov_call_queue_pause(self._handle)

    def wait(self) -> None:
        """Returns when everything added so far has been called, some of it by this thread."""
        self._library.ov_call_queue_wait(self._handle)

    def close(self) -> None:
        """Ends the thread, after the calls that are left."""
        if self._handle is not None:
            self._library.ov_call_queue_destroy(self._handle)
            self._handle = None
