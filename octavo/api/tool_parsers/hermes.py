"""NousResearch's Hermes format, also Qwen2.5's and Qwen3's, Granite 4's and many others':

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>

Runs in: API process. Knows nothing of: requests, texts.
"""

from __future__ import annotations

from octavo.api.parsing.call_parts import Envelope
from octavo.api.parsing.definition import CallSpelling, ToolFormat


def _format(begin: str, end: str) -> ToolFormat:
    return ToolFormat(
        begins=(begin,),
        call=(Envelope(),),
        ends=(end,),
        spelling=CallSpelling(f'{begin}\n{{"name": "', '", "arguments": ', f"}}\n{end}"),
    )


HERMES = _format("<tool_call>", "</tool_call>")
LONGCAT = _format("<longcat_tool_call>", "</longcat_tool_call>")
