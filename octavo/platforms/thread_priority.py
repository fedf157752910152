"""Threads that give way to others.

Runs in: EngineCore, the API process. Knows nothing of: what the threads do.
"""

from __future__ import annotations

import contextlib
import os
import threading

NICENESS = 5


def lower_thread_priority() -> None:
    """The calling thread gets a quarter of a processor that others want, too: on Linux a thread has
    a niceness of its own (sched(7))."""
    with contextlib.suppress(OSError):  # a sandbox may forbid it: then it is a thread like others
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
