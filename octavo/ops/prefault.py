"""The KV cache's memory is touched before its blocks are used, while the engine has nothing to do.

Blocks lie one after the other in memory, and the pool hands out blocks that nobody has had yet in
this order. So what comes next is what lies behind the last block that anybody has had: up to
`PREFAULT_AHEAD_BYTES` of it are given pages by a thread that gives way to all others, and that
touches nothing while a step computes. What is touched stays so. The first `PREFAULT_FIRST_BYTES`
are touched in any case, as the first crowd may come before there has been an idle moment.

The thread is native: one that waits for the interpreter at the lowest priority could hold up a
step, since it would have to run first to give the interpreter back.

Runs in: workers on CPU. Owns: the thread. Knows nothing of: blocks, requests, plans.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from octavo.ops.library import Library
from octavo.platforms.cpu import available_memory_bytes

logger = logging.getLogger(__name__)

#: Memory that is taken and may never be used. Three prompts of a thousand tokens of a small model.
PREFAULT_AHEAD_BYTES = 64 << 20
#: The beginning of the cache, but no more than a third of it. Thirty-two streams of a small model.
PREFAULT_FIRST_BYTES = 512 << 20
#: With less left available, memory that may never be used is left to others.
PREFAULT_RESERVE_BYTES = 3 * PREFAULT_AHEAD_BYTES
#: A huge page.
PIECE_BYTES = 2 << 20
THREAD_NAME = "octavo-prefault"


class KVPrefault:
    """Touches memory ahead of its use. One thread asks and pauses.

    Args:
        library: its thread is started when something is asked for the first time.
        address: of `Library.map_memory`; it stays until `close` has returned.
        size_bytes: of the memory.
        available_memory_bytes: memory this process may still take.
    """

    def __init__(
        self,
        library: Library,
        address: int,
        size_bytes: int,
        *,
        available_memory_bytes: Callable[[], int] = available_memory_bytes,
    ) -> None:
        self._library = library
        self._address = address
        self._size = size_bytes
        self._available_memory_bytes = available_memory_bytes
        self._handle: int | None = None
        self._used = 0
        self._affordable_end = 0  # up to here memory has been found to suffice
        self._has_given_up = False
        #: True if the thread may be touching memory now.
        self.is_running = False

    @property
    def reached_bytes(self) -> int:
        """Memory before this has been used or touched, as far as this object knows."""
        if self._handle is None:
            return 0
        reached: int = self._library.ov_prefault_reached(self._handle)
        if reached < 0:
            self._give_up(os.strerror(-reached))
        return max(reached, 0)

    def go_on(self, used_bytes: int) -> None:
        """Nothing is computed now: touches memory until `pause`, or until it is far enough ahead.
        Returns at once.

        Args:
            used_bytes: memory before this has been used.
        """
        self._used = max(self._used, min(used_bytes, self._size))
        end = prefault_end(self._used, self._size)
        if self._has_given_up or self.reached_bytes >= end or not self._can_afford(end):
            return
        if self._handle is None:
            self._handle = self._library.ov_prefault_create(self._address, THREAD_NAME.encode())
        if self._handle is None:
            self._give_up(self._library.last_error())
        elif not self._has_given_up:
            begin = min(-(-self._used // PIECE_BYTES) * PIECE_BYTES, self._size)
            self._library.ov_prefault_ask(self._handle, begin, end)
            self.is_running = True

    def pause(self) -> None:
        """No more is touched but what has been begun, one huge page at most."""
        if self._handle is not None:
            self._library.ov_prefault_pause(self._handle)
        self.is_running = False

    def close(self) -> None:
        """Ends the thread; from now on the memory may be unmapped."""
        self._has_given_up = True
        if self._handle is not None:
            self._library.ov_prefault_destroy(self._handle)
            self._handle = None

    def _can_afford(self, end: int) -> bool:
        if end > self._affordable_end and (  # asking takes longer than all else here
            self._available_memory_bytes()
            >= PREFAULT_RESERVE_BYTES + end - max(self._used, self.reached_bytes)
        ):
            self._affordable_end = end + PREFAULT_AHEAD_BYTES
        return end <= self._affordable_end

    def _give_up(self, reason: str) -> None:
        if not self._has_given_up:
            self._has_given_up = True
            logger.warning(
                "Memory of the KV cache cannot be had ahead of its use (%s): from now on the steps "
                "that use it first wait for it.",
                reason,
            )


def prefault_end(used_bytes: int, size_bytes: int) -> int:
    """Memory before this should be touched: whole huge pages, or all of it."""
    end = max(used_bytes + PREFAULT_AHEAD_BYTES, min(PREFAULT_FIRST_BYTES, size_bytes // 3))
    return size_bytes if end >= size_bytes else end // PIECE_BYTES * PIECE_BYTES
