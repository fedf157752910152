"""Mistral's formats, the older with a list and the newer with a name before the arguments:

    [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}}]
    [TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{"city": "Paris"}

Its templates refuse ids of calls that have not nine letters or digits, so ids are made here.

Runs in: API process. Knows nothing of: requests, texts.
"""

from __future__ import annotations

import secrets
import string

from octavo.api.parsing.call_parts import Arguments, CallId, Either, Envelope, Fixed, Name
from octavo.api.parsing.definition import CallSpelling, ToolFormat

_ID_CHARACTERS = string.ascii_letters + string.digits
_ID_LENGTH = 9


def mistral_call_id() -> str:
    """A new id."""
    return "".join(secrets.choice(_ID_CHARACTERS) for _ in range(_ID_LENGTH))


MISTRAL = ToolFormat(
    begins=("[TOOL_CALLS]",),
    brackets=True,
    call=(
        Either(
            "{",
            (Envelope(),),
            (
                Name(before=("{", "[ARGS]", "[CALL_ID]"), announces=False),
                CallId("[CALL_ID]"),
                Fixed("[ARGS]", optional=True),
                Arguments(),
            ),
        ),
    ),
    new_id=mistral_call_id,
    spelling=CallSpelling('[TOOL_CALLS][{"name": "', '", "arguments": ', "}]", separator=""),
)
