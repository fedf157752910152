"""What a child process does about itself: reads what its parent said, dies with it.

The parent's side, and why it is done in this way: `octavo/transport/process.py`.
Runs in: EngineCore, workers. Owns: the child's end of the life line.
Knows nothing of: what the process is for.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading

import msgspec

from octavo.transport.process_name import name_thread

#: exit status of a child that ended because its parent did
EXIT_PARENT_DIED = 90

_PR_SET_PDEATHSIG = 1


class ChildArgs(msgspec.Struct, frozen=True):
    """What a child is told by its parent: `child_args()` in the child.

    `started_s` is when the parent started it, on the clock of `time.monotonic()` they share.
    """

    life_fd: int
    parent_pid: int
    started_s: float
    options: dict[str, str]


def child_args() -> ChildArgs:
    """In the child: what `start_child` was given."""
    life_fd, parent_pid, started_s, *options = sys.argv[1:]
    pairs = (option.partition("=") for option in options)
    return ChildArgs(
        int(life_fd),
        int(parent_pid),
        float(started_s),
        {key: value for key, _, value in pairs},
    )


def die_with_parent(args: ChildArgs) -> None:
    """In the child, first of all: arranges that it ends when its parent does."""
    os.set_inheritable(args.life_fd, False)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != args.parent_pid:  # it ended before prctl was called
        os._exit(EXIT_PARENT_DIED)
    threading.Thread(
        target=_watch_life_line, args=(args.life_fd,), name="octavo-life", daemon=True
    ).start()


def _watch_life_line(life_fd: int) -> None:
    name_thread("octavo-life")
    with socket.socket(fileno=life_fd) as life_line:
        life_line.recv(1)  # nothing is ever sent: this returns when the other end is closed
    os._exit(EXIT_PARENT_DIED)


def _prctl(option: int, argument: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0)
