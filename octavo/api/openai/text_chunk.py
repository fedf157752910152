"""The event that brings nothing but text, made as often as there are tokens.

Everything around the text is the same each time: it is encoded once, and only the text is put in
and escaped.

Runs in: API process. Owns: one choice's event around its text. Knows nothing of: replies, HTTP.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

import msgspec

_encode = msgspec.json.encode
#: stands for the text; nothing that a client sends contains it
_MARK = secrets.token_hex(16)


class TextChunk:
    """Makes the event for a text.

    Args:
        make: the event as a struct, in which the text stands once or more.
    """

    __slots__ = ("_around",)

    def __init__(self, make: Callable[[str], msgspec.Struct]) -> None:
        self._around = _encode(make(_MARK)).split(_encode(_MARK))
        assert len(self._around) > 1, "an event without its text"

    def encode(self, text: str) -> msgspec.Raw:
        """What `msgspec.json.encode` of the struct with this text gives."""
        return msgspec.Raw(_encode(text).join(self._around))
