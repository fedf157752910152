"""Pieces of foreign text inside our sentences: on one line, and short.

Runs in: every process. Knows nothing of: what the text means.
"""

from __future__ import annotations

import reprlib

_quoter = reprlib.Repr()  # looks at the beginning of long values only
_quoter.maxlist = _quoter.maxtuple = _quoter.maxdict = 16
_quoter.maxstring = _quoter.maxlong = _quoter.maxother = 200


def shown(value: object, max_characters: int = 60) -> str:
    """A foreign value, quoted."""
    return _shortened(_quoter.repr(value), max_characters)


def printable(text: str, max_characters: int = 300) -> str:
    """Text with control characters replaced."""
    beginning = text[: max_characters + 1]
    clean = "".join(character if character.isprintable() else "?" for character in beginning)
    return _shortened(clean, max_characters)


def first_line(error: BaseException) -> str:
    """What an error says, for use inside a sentence."""
    lines = str(error).strip().splitlines()
    return printable(lines[0] if lines else type(error).__name__)


def _shortened(text: str, max_characters: int) -> str:
    return text if len(text) <= max_characters else text[: max_characters - 3] + "..."
