"""Calls on a stack that is large enough for foreign code that descends as deep as its input.

Native code that runs out of its stack ends the process. Threads get 8 MB as a rule, and nobody can
make those that exist larger.

Runs in: every process. Owns: nothing. Knows nothing of: what is called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_lock = threading.Lock()


def on_deep_stack(call: Callable[[], T], num_bytes: int) -> T:
    """Calls on a thread that lives as long as the call; what it raises is raised here.

    Args:
        num_bytes: size of its stack. Only what is used takes memory, and only meanwhile.

    Raises:
        RuntimeError: there is no room for the stack.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=threading.current_thread().name)
    with _lock:
        before = threading.stack_size(num_bytes)  # of threads that start from now on
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
