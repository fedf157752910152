"""Llama 3's and 4's JSON format: the object alone, several with `;` between them, possibly after
a mark:

    <|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}

Without the mark only an object that names a tool of the request is a call; others are content.

Runs in: API process. Knows nothing of: requests, texts.
"""

from __future__ import annotations

from octavo.api.parsing.call_parts import Envelope
from octavo.api.parsing.definition import CallSpelling, ToolFormat

LLAMA3_JSON = ToolFormat(
    begins=("<|python_tag|>",),
    bare=('{"', '{ "', "{\n"),
    separators=";",
    call=(Envelope(),),
    only_known=True,
    spelling=CallSpelling('{"name": "', '", "parameters": ', "}", separator="; "),
)
