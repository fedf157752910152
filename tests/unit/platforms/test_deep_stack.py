"""Calls on a stack of their own."""

from __future__ import annotations

import ctypes
import threading

import pytest

from octavo.platforms.deep_stack import on_deep_stack

DEEP_BYTES = 64 << 20


def stack_bytes() -> int:
    """Size of the calling thread's stack, as the C library knows it."""
    libc = ctypes.CDLL(None)
    libc.pthread_self.restype = ctypes.c_void_p
    attributes = ctypes.create_string_buffer(256)  # larger than any pthread_attr_t
    base, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert libc.pthread_getattr_np(ctypes.c_void_p(libc.pthread_self()), attributes) == 0
    assert libc.pthread_attr_getstack(attributes, ctypes.byref(base), ctypes.byref(size)) == 0
    libc.pthread_attr_destroy(attributes)
    return size.value


def test_the_stack_is_as_large_as_asked() -> None:
    assert on_deep_stack(stack_bytes, DEEP_BYTES) >= DEEP_BYTES


def test_a_call_gives_its_result_and_has_a_thread_of_its_own() -> None:
    assert on_deep_stack(threading.get_ident, DEEP_BYTES) != threading.get_ident()
    assert on_deep_stack(lambda: None, DEEP_BYTES) is None


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_what_a_call_raises_is_raised_here(error: type[BaseException]) -> None:
    def call() -> None:
        raise error("as asked")

    with pytest.raises(error, match="as asked"):
        on_deep_stack(call, DEEP_BYTES)


def test_threads_that_start_later_have_the_stack_they_had_before() -> None:
    before = threading.stack_size()
    assert on_deep_stack(threading.stack_size, DEEP_BYTES) in (before, DEEP_BYTES)
    assert threading.stack_size() == before


def test_the_thread_is_named_like_its_caller_and_gone_afterwards() -> None:
    count = threading.active_count()
    name = on_deep_stack(lambda: threading.current_thread().name, DEEP_BYTES)
    assert name == threading.current_thread().name
    assert threading.active_count() == count
