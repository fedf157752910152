"""C calls that a thread of its own makes while Python goes on: it never waits for the interpreter.

Used by: `octavo/structured_output/llguidance.py`. Runs in: EngineCore. Owns: the thread.
Knows nothing of: what is called.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from octavo.errors import EngineError
from octavo.ops.library import Library

_CALL = struct.Struct("@PPPNP")


def packed_call(
    function: int, target: int, address: int, num_bytes: int, result_address: int
) -> bytes:
    """`function(target, address, num_bytes)`, in C `int32_t (*)(void*, void*, size_t)`, to be
    written to a result; all are addresses but the number of bytes."""
    return _CALL.pack(function, target, address, num_bytes, result_address)


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

    def add(self, calls: Sequence[bytes]) -> None:
        """What the calls name must stay until `wait` has returned.

        Args:
            calls: of `packed_call`.
        """
        self._library.ov_call_queue_add(self._handle, len(calls), b"".join(calls))

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
