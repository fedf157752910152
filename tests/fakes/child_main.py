"""Small children for the tests of `octavo/transport/process.py`; `what` says what they do.

They speak through a file, because their stdout and stderr are the test runner's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from octavo.transport.child import child_args, die_with_parent
from octavo.transport.process import start_child
from octavo.transport.process_name import name_process

TARGET = "tests.fakes.child_main:main"


def main() -> None:
    """Does what the option `what` says."""
    args = child_args()
    die_with_parent(args)
    what = args.options.get("what", "")
    if what == "exit":
        sys.exit(int(args.options["status"]))
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "hold interpreter":
        hold_interpreter(args.options["file"])
    if what == "be a parent":
        child = start_child("grandchild", TARGET, {})
        say(args.options["file"], str(child.pid))
    if what == "start a sibling":
        # a process that inherits whatever is not close-on-exec, and outlives this one
        sibling = subprocess.Popen(["sleep", "60"], close_fds=False)
        say(args.options["file"], str(sibling.pid))
    if what == "report":
        name_process("Octavo::Test")
        say(args.options["file"], report(args.options))
    threading.Event().wait()


def hold_interpreter(path: str) -> None:
    """A native call that never lets go of the interpreter lock: no other thread can run."""
    import ctypes

    say(path, "holding")
    ctypes.PyDLL(None).pause()


def report(options: dict[str, str]) -> str:
    """What the process sees of itself."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return "\n".join(
        [
            Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").decode(),
            Path("/proc/self/comm").read_text().strip(),
            str({signal.SIGINT, signal.SIGTERM} <= blocked),
            options["text"],
            os.readlink("/proc/self/fd/0"),
        ]
    )


def say(path: str, text: str) -> None:
    """Writes a file in one piece."""
    Path(path + ".part").write_text(text)
    os.rename(path + ".part", path)
