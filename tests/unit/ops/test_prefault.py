"""Memory that is touched before it is used."""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.ops.library import Library, load_library
from octavo.ops.prefault import (
    PIECE_BYTES,
    PREFAULT_AHEAD_BYTES,
    PREFAULT_FIRST_BYTES,
    PREFAULT_RESERVE_BYTES,
    THREAD_NAME,
    KVPrefault,
    prefault_end,
)

MIB = 1 << 20
LIMIT_S = 60.0  # on a busy machine the thread waits, which is its nature


class FakeLibrary:
    """Notes what is asked; the test says how far the thread is."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.reached = 0
        self.is_paused = False
        self.handle: int | None = 1
        self.num_threads = 0

    def ov_prefault_create(self, address: int, name: bytes) -> int | None:
        self.num_threads += 1
        return self.handle

    def ov_prefault_ask(self, handle: int, begin: int, end: int) -> None:
        self.asked.append((begin, end))
        self.reached = max(self.reached, begin)
        self.is_paused = False

    def ov_prefault_pause(self, handle: int) -> None:
        self.is_paused = True

    def ov_prefault_reached(self, handle: int) -> int:
        return self.reached

    def ov_prefault_destroy(self, handle: int) -> None:
        self.num_threads -= 1

    def last_error(self) -> str:
        return "prefault: no thread"

    def touch(self, num_pieces: int) -> None:
        """What the thread does."""
        if self.asked and not self.is_paused:
            end = self.asked[-1][1]
            self.reached = min(end, (self.reached // PIECE_BYTES + num_pieces) * PIECE_BYTES)


def faked(library: FakeLibrary, size: int, available: int = 1 << 40) -> KVPrefault:
    made: Any = library
    return KVPrefault(made, 1 << 21, size, available_memory_bytes=lambda: available)


def bound(used: int, size: int) -> int:
    """A third of the memory, but not more than is worth it, or some beyond what is used."""
    return min(size, max(used + PREFAULT_AHEAD_BYTES, min(PREFAULT_FIRST_BYTES, size // 3)))


@given(
    st.integers(1, 2400 * MIB),
    st.lists(
        st.tuples(st.integers(0, 2500 * MIB), st.booleans(), st.integers(0, 400)), max_size=20
    ),
)
def test_it_is_ahead_by_a_bound_and_never_goes_back(
    size: int, moments: list[tuple[int, bool, int]]
) -> None:
    library = FakeLibrary()
    prefault = faked(library, size)
    used = 0
    for used_bytes, is_step, num_pieces in moments:
        used = max(used, min(used_bytes, size))
        prefault.go_on(used_bytes)
        assert prefault.is_running <= (not library.is_paused)
        if is_step:
            prefault.pause()
        library.touch(num_pieces)
        for begin, end in library.asked[-1:]:
            assert 0 <= begin <= end <= bound(used, size)
            assert end == size or end % PIECE_BYTES == 0
            assert begin == size or begin % PIECE_BYTES == 0
        assert library.reached <= bound(used, size)
    assert library.asked == sorted(library.asked)
    prefault.go_on(used)
    library.touch(2000)
    assert library.reached >= min(size, bound(used, size) - PIECE_BYTES + 1)


def test_the_first_crowd_finds_memory_that_was_touched_while_nobody_came() -> None:
    assert prefault_end(0, 12 * PREFAULT_FIRST_BYTES) == PREFAULT_FIRST_BYTES
    assert prefault_end(0, 600 * MIB) == 200 * MIB
    assert prefault_end(0, 96 * MIB) == PREFAULT_AHEAD_BYTES
    used = PREFAULT_FIRST_BYTES - 32 * MIB
    assert prefault_end(used, 12 * PREFAULT_FIRST_BYTES) == used + PREFAULT_AHEAD_BYTES


def test_far_enough_ahead_nothing_is_asked_and_a_pause_is_over_with_the_next_idle_moment() -> None:
    library = FakeLibrary()
    prefault, end = faked(library, 1 << 30), prefault_end(0, 1 << 30)
    prefault.go_on(0)
    assert prefault.is_running
    prefault.pause()
    assert not prefault.is_running
    library.touch(1000)
    prefault.go_on(0)
    library.touch(1000)
    assert library.reached == end
    prefault.pause()
    for _ in range(3):
        prefault.go_on(MIB)
    assert library.asked == [(0, end)] * 2
    assert not prefault.is_running


def test_memory_that_others_may_need_is_left_alone() -> None:
    library = FakeLibrary()
    needed = PREFAULT_RESERVE_BYTES + prefault_end(0, 1 << 30)
    prefault = faked(library, 1 << 30, needed - 1)
    prefault.go_on(0)
    assert not library.asked
    assert library.num_threads == 0
    enough = faked(library, 1 << 30, needed)
    enough.go_on(0)
    assert library.asked


def test_memory_is_looked_at_again_only_after_as_much_was_asked() -> None:
    library, looks = FakeLibrary(), []
    made: Any = library
    prefault = KVPrefault(
        made, 1 << 21, 3 << 30, available_memory_bytes=lambda: looks.append(0) or 1 << 40
    )
    begin = PREFAULT_FIRST_BYTES
    for used in range(begin, begin + 8 * PREFAULT_AHEAD_BYTES, PIECE_BYTES):
        prefault.go_on(used)
        library.touch(1000)
    assert len(library.asked) == 8 * PREFAULT_AHEAD_BYTES // PIECE_BYTES
    assert len(looks) <= 8


def test_without_a_thread_it_gives_up_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    library = FakeLibrary()
    library.handle = None
    prefault = faked(library, 1 << 30)
    with caplog.at_level(logging.INFO):
        for used in range(3):
            prefault.go_on(used)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "(prefault: no thread)" in caplog.text
    assert not prefault.is_running
    prefault.close()


@dataclass
class Memory:
    """Real memory of the library."""

    library: Library
    address: int
    size: int

    def prefault(self) -> KVPrefault:
        return KVPrefault(
            self.library, self.address, self.size, available_memory_bytes=lambda: 1 << 40
        )

    def values(self) -> npt.NDArray[np.uint8]:
        """All bytes."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.size).from_address(self.address))

    def touched(self) -> list[bool]:
        """Of each small page."""
        num_pages = -(-self.size // mmap.PAGESIZE)
        vector = (ctypes.c_ubyte * num_pages)()
        libc = ctypes.CDLL(None, use_errno=True)
        code = libc.mincore(ctypes.c_void_p(self.address), ctypes.c_size_t(self.size), vector)
        assert code == 0, os.strerror(ctypes.get_errno())
        return [bool(page & 1) for page in vector]

    def touched_bytes(self, begin: int, end: int) -> int:
        pages = self.touched()[begin // mmap.PAGESIZE : end // mmap.PAGESIZE]
        return sum(pages) * mmap.PAGESIZE


@pytest.fixture(params=[9 * PIECE_BYTES + 3 * MIB // 2 + 4096, 48 << 10], ids=["huge", "small"])
def memory(request: pytest.FixtureRequest) -> Iterator[Memory]:
    library = load_library()
    size = request.param
    address = library.map_memory(size)
    assert address is not None
    yield Memory(library, address, size)
    library.ov_memory_unmap(address, size)


@pytest.fixture
def large() -> Iterator[Memory]:
    """More than is touched ahead."""
    library = load_library()
    size = 2 * PREFAULT_AHEAD_BYTES
    address = library.map_memory(size)
    assert address is not None
    yield Memory(library, address, size)
    library.ov_memory_unmap(address, size)


def wait_until(condition: Callable[[], bool]) -> None:
    end, never = time.monotonic() + LIMIT_S, threading.Event()
    while not condition():
        assert time.monotonic() < end, "did not happen"
        never.wait(0.001)  # leaves it the processor


def test_all_of_a_small_pool_is_touched(memory: Memory) -> None:
    assert not any(memory.touched())
    prefault = memory.prefault()
    prefault.go_on(0)
    wait_until(lambda: prefault.reached_bytes == memory.size)
    assert all(memory.touched())
    prefault.close()


def test_what_is_touched_lies_between_what_is_used_and_the_bound(large: Memory) -> None:
    prefault = large.prefault()
    used = 3 * PIECE_BYTES + 1
    end = PREFAULT_AHEAD_BYTES + 3 * PIECE_BYTES
    prefault.go_on(used)
    wait_until(lambda: prefault.reached_bytes == end)
    prefault.close()
    first = 4 * PIECE_BYTES
    assert large.touched_bytes(0, first) == 0
    assert large.touched_bytes(first, end) == end - first
    assert large.touched_bytes(end, large.size) == 0


def test_contents_stay(memory: Memory) -> None:
    values = memory.values()
    wanted = np.zeros_like(values)
    wanted[::1021] = np.arange(len(wanted[::1021])) % 251 + 1
    values[:: 1021 * 2] = wanted[:: 1021 * 2]
    prefault = memory.prefault()
    prefault.go_on(0)
    values[1021 :: 1021 * 2] = wanted[1021 :: 1021 * 2]  # while others touch it
    wait_until(lambda: prefault.reached_bytes == memory.size)
    prefault.close()
    np.testing.assert_array_equal(values, wanted)


def test_where_the_kernel_does_not_know_how_pages_are_written_to(memory: Memory) -> None:
    """It says so of an address within a page, too."""
    values = memory.values()
    values[[64, 4096 + 65]] = 7, 9
    prefault = KVPrefault(memory.library, memory.address + 64, memory.size - 64)
    prefault.go_on(0)
    wait_until(lambda: prefault.reached_bytes == memory.size - 64)
    prefault.close()
    assert all(memory.touched())
    assert np.flatnonzero(values).tolist() == [64, 4096 + 65]


def test_a_pause_stops_it_and_an_idle_moment_lets_it_go_on(large: Memory) -> None:
    prefault = large.prefault()
    prefault.go_on(0)
    wait_until(lambda: prefault.reached_bytes > 0)
    prefault.pause()
    reached = prefault.reached_bytes
    end = time.monotonic() + 0.1
    wait_until(lambda: time.monotonic() >= end)
    assert prefault.reached_bytes <= reached + PIECE_BYTES  # what had been begun
    prefault.go_on(0)
    wait_until(lambda: prefault.reached_bytes == PREFAULT_AHEAD_BYTES)
    prefault.close()


def test_memory_that_cannot_be_had_is_a_warning(
    large: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    hole = 5 * PIECE_BYTES
    large.library.ov_memory_unmap(large.address + hole, PIECE_BYTES)
    prefault = large.prefault()
    with caplog.at_level(logging.INFO):
        prefault.go_on(0)

        def is_over() -> bool:
            prefault.go_on(0)
            return bool(caplog.records)

        wait_until(is_over)
        for used in range(3):
            prefault.go_on(used * PIECE_BYTES)
    assert len(caplog.records) == 1
    assert "Cannot allocate memory" in caplog.text
    prefault.close()
    pages = large.size // mmap.PAGESIZE
    vector = (ctypes.c_ubyte * pages)()
    ctypes.CDLL(None).mincore(ctypes.c_void_p(large.address), ctypes.c_size_t(hole), vector)
    assert sum(vector[: hole // mmap.PAGESIZE]) * mmap.PAGESIZE == hole


def threads() -> list[int]:
    """Those of this kind, by number."""
    tasks = Path("/proc/self/task")
    return [
        int(task.name)
        for task in tasks.iterdir()
        if (task / "comm").read_text().strip() == THREAD_NAME
    ]


def test_the_thread_gives_way_to_all_others_and_ends(memory: Memory) -> None:
    prefault = memory.prefault()
    assert not threads()
    prefault.go_on(0)
    wait_until(lambda: prefault.reached_bytes == memory.size)
    (thread,) = threads()
    assert os.sched_getscheduler(thread) == os.SCHED_IDLE
    prefault.close()
    assert not threads()
    prefault.go_on(0)
    assert not threads()


def test_the_memory_may_go_as_soon_as_it_is_closed() -> None:
    library = load_library()
    for _ in range(20):
        size = 40 * PIECE_BYTES
        address = library.map_memory(size)
        assert address is not None
        prefault = KVPrefault(library, address, size)
        prefault.go_on(0)
        prefault.close()
        library.ov_memory_unmap(address, size)


def test_a_forked_child_has_no_thread_and_closes_without_it(large: Memory) -> None:
    prefault = large.prefault()
    prefault.go_on(0)
    child = os.fork()
    if child == 0:
        prefault.pause()
        prefault.go_on(PREFAULT_AHEAD_BYTES)
        prefault.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    wait_until(lambda: prefault.reached_bytes == PREFAULT_AHEAD_BYTES)
    prefault.close()
