"""Does a text satisfy a grammar? Asked of the real library, byte by byte."""

from __future__ import annotations

import functools

from octavo.messages.grammar import Grammar
from octavo.structured_output.backend import GrammarError
from octavo.structured_output.llguidance import LlguidanceBackend
from octavo.structured_output.vocabulary import byte_vocabulary

END = 256


@functools.cache
def byte_backend() -> LlguidanceBackend:
    return LlguidanceBackend(byte_vocabulary(["<|tool|>"]))


def matches(grammar: Grammar, text: str) -> bool:
    """True if `text` is complete: the grammar allows all of it, and its end."""
    matcher = byte_backend().compile(grammar).start()
    try:
        for byte in text.encode():
            matcher.accept(byte)
        if not matcher.is_complete:
            matcher.accept(END)
    except GrammarError:
        return False
    return True
