"""Formats with one JSON list of calls, or one object for one call, after a mark:

    <tool_calls>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</tool_calls>

Runs in: API process. Knows nothing of: requests, texts.
"""

from __future__ import annotations

from octavo.api.parsing.call_parts import Envelope
from octavo.api.parsing.definition import CallSpelling, ToolFormat


def _list_spelling(begin: str, end: str = "") -> CallSpelling:
    return CallSpelling(f'{begin}[{{"name": "', '", "arguments": ', f"}}]{end}")


#: Granite 3.0 and 3.1
GRANITE = ToolFormat(
    begins=("<|tool_call|>", "<tool_call>"),
    brackets=True,
    call=(Envelope(),),
    spelling=_list_spelling("<tool_call>"),
)
#: Jamba, Hunyuan A13B
TOOL_CALLS_TAGS = ToolFormat(
    begins=("<tool_calls>",),
    brackets=True,
    call=(Envelope(),),
    ends=("</tool_calls>",),
    spelling=_list_spelling("<tool_calls>", "</tool_calls>"),
)
#: Phi 4 mini
FUNCTOOLS = ToolFormat(
    begins=("functools",),
    brackets=True,
    call=(Envelope(),),
    spelling=_list_spelling("functools"),
)
#: InternLM 2 and 2.5
INTERNLM = ToolFormat(
    begins=("<|action_start|><|plugin|>",),
    call=(Envelope(),),
    ends=("<|action_end|>",),
    spelling=CallSpelling(
        '<|action_start|><|plugin|>\n{"name": "', '", "parameters": ', "}<|action_end|>"
    ),
)
