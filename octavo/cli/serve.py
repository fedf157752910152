"""`octavo serve`: command line -> options -> `octavo/launch/serve.py`.

Runs in: the API process. Owns: the order of the first steps, and what is logged of them.
Knows nothing of: what is started (octavo/launch).
"""

from __future__ import annotations

import gc

from octavo.cli.console import show
from octavo.config.parser import parse_serve


def serve(argv: list[str]) -> int:
    """Parses `argv` (the words after `serve`) and serves until the server ends.

    Returns:
        The exit code.

    Raises:
        StartupError: usage, configuration or start fails; `main` prints it.
    """
    parsed = parse_serve(argv)
    if parsed.help_topic is not None:
        from octavo.cli.help import serve_help  # texts are for --help only

        show(serve_help(parsed.help_topic))
        return 0
    gc.disable()  # nothing made during start-up becomes garbage; the ready server freezes the heap
    # first of all that is slow: from here on a signal ends the start in good order
    from octavo.transport.start_signals import StartSignals

    signals = StartSignals()
    # dataclasses, msgspec and logging: --help does without them
    from octavo.cli.serve_run import run

    return run(parsed, signals)
