"""What the kernel says of a process."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def thread_names(pid: int) -> list[str]:
    """Names of its threads, as `top -H` shows them."""
    names = []
    for path in Path(f"/proc/{pid}/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it has just ended
            names.append(path.read_text().strip())
    return names


def sockets_of(pid: int) -> set[int]:
    """Inodes of its open sockets."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # it has just been closed
            kind, _, number = os.readlink(f"/proc/{pid}/fd/{fd}").partition(":")
            if kind == "socket":
                inodes.add(int(number.strip("[]")))
    return inodes


def unix_socket_paths(pid: int) -> set[str]:
    """Paths of the Unix sockets that it has bound, or that its connections were accepted on."""
    inodes = sockets_of(pid)
    paths = set()
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) == 8 and int(fields[6]) in inodes:
            paths.add(fields[7])
    return paths


def mapped_files(pid: int) -> set[str]:
    """Files in its address space."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if "/" in line}
