"""What `ps` and `top` show of processes and threads, and what they must not show.

Runs in: every process, at its start. Owns: nothing. Knows nothing of: what is named.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

#: the kernel keeps so many bytes of a thread's name
MAX_THREAD_NAME = 15


def name_thread(name: str) -> None:
    """Names the calling thread for the kernel (`top -H`); Python does it itself only from 3.14
    on. The process itself is listed by its main thread's name."""
    # a name is a help, not a need: a sandbox may have no /proc or a read-only one
    with (
        contextlib.suppress(OSError),
        open(f"/proc/self/task/{threading.get_native_id()}/comm", "wb") as file,
    ):
        file.write(name.encode()[:MAX_THREAD_NAME])


def name_process(title: str) -> None:
    """Makes `title` what `ps` and `top` show of this process; called on the main thread."""
    name_thread(title)
    start, size = _argument_area()
    _write(start, title.encode()[: max(size - 1, 0)].ljust(size, b"\0"))


def hide_in_command_line(secrets: Sequence[str]) -> None:
    """Replaces each secret by asterisks in what everybody on the machine can read of this process's
    command line. The program has its own copy."""
    with open("/proc/self/cmdline", "rb") as file:
        arguments = file.read()
    shown = arguments
    for secret in filter(None, secrets):
        data = secret.encode()
        shown = shown.replace(data, b"*" * len(data))
    if shown != arguments:
        start, size = _argument_area()
        _write(start, shown[:size])


def _argument_area() -> tuple[int, int]:
    """Address and size of this process's arguments, which is what /proc/self/cmdline shows. Python
    has made its own copies of them long before."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start, arg_end: see proc(5)
    return start, max(end - start, 0)


def _write(address: int, data: bytes) -> None:
    if not data or not address:  # a kernel that does not tell
        return
    import ctypes  # 5 ms that most starts of a server do without

    ctypes.memmove(address, data, len(data))
