"""The `octavo` command: picks the subcommand, turns errors into one sentence and an exit code.

`--help` and `--version` are answered before anything heavy is imported.

Runs in: the shell's process. Owns: exit codes. Knows nothing of: HTTP, engines.
"""

from __future__ import annotations

import sys

from octavo import __version__
from octavo.cli.console import show
from octavo.errors import CommandFailed, ConfigError, StartupError

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT


def main(argv: list[str] | None = None) -> int:
    """Runs the command line; returns the process's exit code.

    0 done; 2 wrong usage or configuration; 1 failed; 130 interrupted; others as the command says.
    """
    words = sys.argv[1:] if argv is None else argv
    try:
        return _dispatch(words)
    except KeyboardInterrupt:  # before `serve` takes the signals over: nothing is there to clean up
        return EXIT_INTERRUPTED
    except (StartupError, CommandFailed) as error:
        print(f"octavo: error: {error.message}", file=sys.stderr, flush=True)
        return error.exit_code


def _dispatch(words: list[str]) -> int:
    first = words[0] if words else "--help"
    if first in ("-v", "--version"):
        show(__version__)
        return 0
    if first in ("-h", "--help") or first.startswith("--help="):
        from octavo.cli.help import main_help  # the flag table is for --help and serve only

        show(main_help())
        return 0 if words else EXIT_USAGE
    from octavo.cli.commands import TARGETS, run  # not paid for by --version

    if first in TARGETS:
        return run(first, words[1:])
    from octavo.cli.help import unknown_command  # only after a mistake

    raise ConfigError(unknown_command(first))
