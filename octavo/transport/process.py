"""Starting a child process, and noticing its end. The child's side: `octavo/transport/child.py`.

Both ends hold one end of a socket pair, the *life line*. The kernel closes it however a process
ends, so each side sees the other's end within milliseconds, also after SIGKILL:

- the parent's end is close-on-exec, so no sibling holds it open; when it closes, a watcher thread
  in the child ends the child at once;
- the child's end closes with the child; the parent's end becomes readable then.

`PR_SET_PDEATHSIG` is a second belt for a child whose threads do not run (stopped, or in a native
call that holds the interpreter). It follows the parent's *thread*, so children are started from the
main thread only.

SIGINT and SIGTERM are blocked in children from their first instruction: a terminal and a service
manager send them to the whole group, but when and how a child ends is the parent's decision.

Runs in: API process, EngineCore. Owns: the child's process, the parent's end of the life line.
Knows nothing of: what the child does, messages.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

from octavo.errors import StartupError

_FROM_PARENT = (signal.SIGINT, signal.SIGTERM)
#: What a child finds in its environment unless it is there already. Importing numpy starts a thread
#: per core for linear algebra, which no child of ours does: 35 ms of the start on two cores.
_CHILD_DEFAULTS = {"OPENBLAS_NUM_THREADS": "1"}
#: numpy's BLAS starts a thread per core at import, and nothing here multiplies with it
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}


class ChildProcess:
    """A child and the parent's end of its life line.

    Args:
        name: what it is, for messages.
        process: the started process.
        life_line: the parent's end.
    """

    def __init__(
        self, name: str, process: subprocess.Popen[bytes], life_line: socket.socket
    ) -> None:
        self.name = name
        self._process = process
        self._life_line = life_line

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def fileno(self) -> int:
        """Readable once the child has ended; for a poll or an event loop."""
        return self._life_line.fileno()

    def poll(self) -> int | None:
        """Exit status (negative: minus the signal that ended it), None while it runs."""
        return self._process.poll()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Waits for its end; None if it still runs when the time is over."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Ends it at once, with all it has started, and waits until it is gone. Idempotent."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """`kill`, and lets go of the life line. Idempotent."""
        self.kill()
        self._life_line.close()

    def describe_end(self) -> str:
        """How it ended, as the end of a sentence: `engine core (pid 42) ...`."""
        status = self.wait(timeout_s=5.0)
        who = f"{self.name} (pid {self.pid})"
        if status is None:
            return f"{who} closed its life line but still runs"
        if status >= 0:
            return f"{who} ended with exit status {status}"
        try:
            signal_name = signal.Signals(-status).name
        except ValueError:
            signal_name = f"signal {-status}"
        hint = ""
        if -status == signal.SIGKILL:
            hint = "; the kernel does that when memory runs out"
        return f"{who} was ended by {signal_name}{hint}"


def start_child(name: str, target: str, options: Mapping[str, str]) -> ChildProcess:
    """Starts a Python child in this interpreter's environment. Its stderr is this process's own.

    Args:
        name: what it is, for messages.
        target: `module:function` to call in the child, without arguments. The garbage collector
            is off until it calls `gc.enable`.
        options: what the child finds in `child_args().options`. Everybody can see it.

    Raises:
        StartupError: the process cannot be started.
    """
    assert threading.current_thread() is threading.main_thread(), (
        "PR_SET_PDEATHSIG follows the starting thread, so it must be the main one"
    )
    ours, theirs = socket.socketpair()  # close-on-exec, both
    fd = theirs.fileno()
    command = [
        sys.executable,
        # not the current folder: a file named like a module of the standard library may lie there
        "-P",
        "-c",
        _bootstrap(target),
        str(fd),
        str(os.getpid()),
        repr(time.monotonic()),
        *(f"{key}={value}" for key, value in options.items()),
    ]
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, _FROM_PARENT)  # the child inherits it
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            pass_fds=(fd,),
            env={**_ENVIRONMENT, **os.environ},
        )
    except OSError as error:
        ours.close()
        raise StartupError(f"The {name} process cannot be started: {error}.") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        theirs.close()
    return ChildProcess(name, process, ours)


def runtime_dir_bases() -> list[str]:
    """Folders in which sockets may be put, best first; none depends on a home folder or on the
    user's having a name."""
    named = [os.environ.get(name) for name in ("XDG_RUNTIME_DIR", "TMPDIR")]
    bases = [*named, "/tmp", "/var/tmp", "/dev/shm"]
    return [base for base in bases if base and os.path.isdir(base)]


def _bootstrap(target: str) -> str:
    module, function = target.split(":")
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    # The collector would only look at what imports make, all of which stays; the child turns it on.
    # Appended, not inserted: the package's folder may be site-packages, which must come last.
    return (
        f"import gc, sys; gc.disable(); sys.path.append({root!r}); "
        f"from {module} import {function}; {function}()"
    )
