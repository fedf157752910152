"""Qwen2.5-Coder: Hermes' format, as its template asks, or what the small models write instead, the
object alone or in a code block:

    ```json
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    ```

Without Hermes' mark only an object that names a tool of the request is a call; others are content,
with their code block.

Runs in: API process. Knows nothing of: requests, texts.
"""

from __future__ import annotations

from octavo.api.parsing.call_parts import Envelope, Fixed
from octavo.api.parsing.definition import ToolFormat
from octavo.api.tool_parsers.hermes import HERMES

QWEN2_5_CODER = ToolFormat(
    begins=HERMES.begins,
    ends=HERMES.ends,
    bare=("```json\n{", '{"', '{ "', "{\n"),
    call=(Fixed("```json\n", optional=True), Envelope(), Fixed("```", optional=True)),
    only_known=True,
    spelling=HERMES.spelling,
)
