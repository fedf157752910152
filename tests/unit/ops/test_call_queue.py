"""Calls that a thread of the native library makes."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.ops.abi import OvQueuedCall
from octavo.ops.call_queue import CallQueue, packed_call
from octavo.ops.library import load_library

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def calls(
    function: Any, results: np.ndarray[Any, Any], arguments: Sequence[tuple[int, int, int]]
) -> list[bytes]:
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    first = results.ctypes.data
    return [
        packed_call(address, *words, first + 4 * number) for number, words in enumerate(arguments)
    ]


def test_a_packed_call_is_the_c_struct() -> None:
    made = OvQueuedCall.from_buffer_copy(packed_call(1, 2, 3, 4, 5))
    assert [getattr(made, name) for name, _ in OvQueuedCall._fields_] == [1, 2, 3, 4, 5]
    assert ctypes.sizeof(OvQueuedCall) == len(packed_call(1, 2, 3, 4, 5))


@pytest.fixture
def queue() -> Iterator[CallQueue]:
    made = CallQueue(load_library(), "calls of a test")
    yield made
    made.close()


def test_calls_are_begun_in_order_by_another_thread_and_by_who_waits(queue: CallQueue) -> None:
    seen: list[tuple[int, int, int]] = []
    threads: list[int] = []
    lock, is_begun = threading.Lock(), threading.Event()

    @FUNCTION
    def call(target: int, address: int, num_bytes: int) -> int:
        with lock:
            threads.append(threading.get_native_id())
            seen.append((target, address, num_bytes))
        is_begun.set()
        return -target

    arguments = [(number + 1, number + 2, number + 3) for number in range(100)]
    results = np.zeros(100, np.int32)
    made = calls(call, results, arguments)
    queue.add(made[:1])
    assert is_begun.wait(5)
    other = threads[0]
    name = Path(f"/proc/{os.getpid()}/task/{other}/comm").read_text().strip()
    assert name == "calls of a test"
    queue.add(made[1:])
    queue.wait()
    assert sorted(seen) == arguments
    assert results.tolist() == [-target for target, _, _ in arguments]
    assert set(threads) <= {other, threading.get_native_id()}


def test_a_pause_leaves_calls_to_who_waits(queue: CallQueue) -> None:
    threads: list[int] = []

    @FUNCTION
    def call(target: int, address: int, num_bytes: int) -> int:
        threads.append(threading.get_native_id())
        return 1

    queue.pause()
    results = np.zeros(1, np.int32)
    queue.add(calls(call, results, [(1, 1, 1)]))
    assert threads == []
    queue.wait()
    assert threads == [threading.get_native_id()], "nobody else is woken for one"
    assert results.tolist() == [1]


def test_nothing_is_waited_for_when_there_is_nothing(queue: CallQueue) -> None:
    queue.wait()


def test_who_adds_does_not_wait(queue: CallQueue) -> None:
    gate = threading.Event()

    @FUNCTION
    def call(target: int, address: int, num_bytes: int) -> int:
        return int(gate.wait(5))

    results = np.full(1, 7, np.int32)
    queue.add(calls(call, results, [(1, 1, 1)]))
    assert results.tolist() == [7]
    gate.set()
    queue.wait()
    assert results.tolist() == [1]


def test_calls_that_are_left_are_made_before_the_end(queue: CallQueue) -> None:
    made: list[int] = []

    @FUNCTION
    def call(target: int, address: int, num_bytes: int) -> int:
        made.append(target)
        return 0

    results = np.zeros(20, np.int32)
    queue.add(calls(call, results, [(number + 1, 1, 1) for number in range(20)]))
    queue.close()
    assert made == list(range(1, 21))
    queue.close()
