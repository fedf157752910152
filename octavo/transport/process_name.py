"""What `ps` and `top` show of processes and threads, and what they must not show.

Runs in: every process, at its start. Owns: nothing. Knows nothing of: what is named.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

#: the kernel keeps so many bytes of a thread's name
MAX_THREAD_NAME = 15
#: bytes of a secret that is in no word by chance
_LONG_SECRET = 8


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
    command line. The program has its own copy.

    A secret is a whole word, or all that follows a `=`; a long one is hidden wherever it stands. A
    short one stands in other words by chance, and asterisks there would tell it.
    """
    with open("/proc/self/cmdline", "rb") as file:
        arguments = file.read()
    words = arguments.split(b"\0")
    for secret in filter(None, secrets):
        words = [_without(secret.encode(), word) for word in words]
    shown = b"\0".join(words)
    if shown != arguments:
        start, size = _argument_area()
        _write(start, shown[:size])


def _without(secret: bytes, word: bytes) -> bytes:
    stars = b"*" * len(secret)
    if len(secret) >= _LONG_SECRET:
        return word.replace(secret, stars)
    name, equals, value = word.partition(b"=")
    if equals and value == secret:
        return name + equals + stars
    return stars if word == secret else word


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
