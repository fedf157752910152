"""GLM 4.5's and 4.7's format:

    <tool_call>get_weather
    <arg_key>city</arg_key>
    <arg_value>Paris</arg_value>
    </tool_call>

Runs in: API process. Knows nothing of: requests, texts.
"""

from __future__ import annotations

from octavo.api.parsing.argument_parts import TaggedArguments
from octavo.api.parsing.call_parts import Name
from octavo.api.parsing.definition import ToolFormat

GLM = ToolFormat(
    begins=("<tool_call>",),
    call=(
        Name(before=("<arg_key>", "</tool_call>")),
        TaggedArguments(
            "<arg_key>",
            "</arg_key>",
            "</arg_value>",
            value_begin="<arg_value>",
            ends=("</tool_call>",),
        ),
    ),
    ends=("</tool_call>",),
)
