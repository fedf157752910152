"""Printing long texts to a terminal or a pipe that may be closed early.

Runs in: the shell's process. Knows nothing of: what is printed.
"""

from __future__ import annotations

import os
import sys


def show(text: str) -> None:
    """Prints `text`; a reader that has seen enough (`octavo serve --help=all | head`) is fine."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # what is still buffered has nowhere to go; the interpreter would complain of it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
