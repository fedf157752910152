"""Qwen3-Coder's format, also Seed-OSS's and Step 3.5's:

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

Runs in: API process. Knows nothing of: requests, texts.
"""

from __future__ import annotations

from octavo.api.parsing.argument_parts import TaggedArguments
from octavo.api.parsing.call_parts import Fixed, Name
from octavo.api.parsing.definition import ToolFormat


def _format(begin: str, end: str) -> ToolFormat:
    return ToolFormat(
        begins=(begin,),
        bare=("<function=",),
        call=(
            Fixed("<function="),
            Name(ends=(">",)),
            TaggedArguments(
                "<parameter=", ">", "</parameter>", ends=("</function>", end), trims=True
            ),
            Fixed("</function>"),
        ),
        ends=(end,),
    )


QWEN3_CODER = _format("<tool_call>", "</tool_call>")
SEED_OSS = _format("<seed:tool_call>", "</seed:tool_call>")
