"""MiniMax M2's format:

    <minimax:tool_call>
    <invoke name="get_weather">
    <parameter name="city">Paris</parameter>
    </invoke>
    </minimax:tool_call>

Runs in: API process. Knows nothing of: requests, texts.
"""

from __future__ import annotations

from octavo.api.parsing.argument_parts import TaggedArguments
from octavo.api.parsing.call_parts import Fixed, Name
from octavo.api.parsing.definition import ToolFormat

MINIMAX_M2 = ToolFormat(
    begins=("<minimax:tool_call>",),
    call=(
        Fixed('<invoke name="'),
        Name(ends=('">',)),
        TaggedArguments(
            '<parameter name="',
            '">',
            "</parameter>",
            ends=("</invoke>", "</minimax:tool_call>"),
        ),
        Fixed("</invoke>"),
    ),
    ends=("</minimax:tool_call>",),
)
