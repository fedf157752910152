"""A private folder for the sockets of one server, and the removal of those of dead servers.

The owner holds a lock on a file in its folder for as long as it lives; the kernel lets go of it
however the owner ends. So a folder whose lock can be taken is stale, whatever its name says, also
where process ids mean nothing (a temporary folder shared by containers).

Runs in: API process. Owns: the folder. Knows nothing of: sockets, environment variables.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import time
from collections.abc import Sequence

from octavo.errors import StartupError

PREFIX = "octavo-"
#: what `_make` makes, and nobody would call a folder of their own
_MADE_NAME = re.compile(rf"{PREFIX}\d+-[0-9a-f]{{8}}")
#: longest path of a Unix socket (sun_path is 108 bytes with its closing zero)
MAX_SOCKET_PATH_BYTES = 107
_LOCK = "lock"
#: longest file name that will be put into the folder
_MAX_NAME_BYTES = 16
#: a folder younger than this without a lock is being made by its owner right now
_MIN_STALE_AGE_S = 60.0


class RuntimeDir:
    """The folder; only this user can look into it.

    Args:
        bases: where to make it; the first in which it works is taken.

    Raises:
        StartupError: it works nowhere.
    """

    def __init__(self, bases: Sequence[str]) -> None:
        problems = []
        for base in bases:
            try:
                _remove_stale(base)
                self.path, self._lock_fd = _make(base)
                return
            except OSError as error:
                problems.append(f"{base}: {error.strerror or error}")
        raise StartupError(
            "No folder for the engine's socket can be made (" + "; ".join(problems) + "). Set "
            "TMPDIR to a folder with a short path that can be written."
        )

    def socket_path(self, name: str) -> str:
        """Path of a socket in the folder."""
        path = os.path.join(self.path, name)
        assert len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES, path
        return path

    def remove(self) -> None:
        """Removes the folder and what is in it. Idempotent."""
        if self._lock_fd >= 0:
            with contextlib.suppress(OSError):  # it is gone with the whole temporary folder
                _remove_flat(self.path)
            os.close(self._lock_fd)
            self._lock_fd = -1


def _make(base: str) -> tuple[str, int]:
    while True:
        path = os.path.join(base, f"{PREFIX}{os.getpid()}-{os.urandom(4).hex()}")
        if len(os.fsencode(path)) + 1 + _MAX_NAME_BYTES > MAX_SOCKET_PATH_BYTES:
            raise OSError(f"the path is too long for a Unix socket ({len(path)} characters)")
        os.mkdir(path, 0o700)
        lock_path = os.path.join(path, _LOCK)
        lock_fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(lock_path):
                return path, lock_fd
        except OSError:
            pass
        # somebody cleaned up between mkdir and lock: once more, under another name
        os.close(lock_fd)


def _remove_stale(base: str) -> None:
    for name in os.listdir(base):
        if _MADE_NAME.fullmatch(name):
            # what belongs to others, or is being removed by others, is left to them
            with contextlib.suppress(OSError):
                _remove_if_stale(os.path.join(base, name))


def _remove_if_stale(path: str) -> None:
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        return
    try:
        lock_fd = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        if time.time() - status.st_mtime > _MIN_STALE_AGE_S:
            _remove_flat(path)
        return
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_flat(path)
    finally:
        os.close(lock_fd)


def _remove_flat(path: str) -> None:
    # the lock goes last: until then nobody else removes the rest, or takes the folder for young
    for name in sorted(os.listdir(path), key=_LOCK.__eq__):
        os.unlink(os.path.join(path, name))
    os.rmdir(path)
