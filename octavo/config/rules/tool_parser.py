"""`--tool-call-parser` beside `--enable-auto-tool-choice`, and the files of plug-ins.

Runs in: the API process. Knows nothing of: parsers, models.
"""

from __future__ import annotations

from pathlib import Path

from octavo.errors import ConfigError

#: the parser that the chat template tells
AUTO = "auto"


def choose_tool_parser(given: str | None, *, is_auto_choice: bool) -> str | None:
    """The name of the parser; None: there is none. Whoever lets the model choose and names no
    parser gets the one that the chat template tells."""
    return given or (AUTO if is_auto_choice else None)


def check_plugin(flag: str, path: str) -> None:
    """
    Raises:
        ConfigError: there is no such file.
    """
    if path and not Path(path).is_file():
        raise ConfigError(f"{flag} {path} is not a file; give the path of a .py file")
