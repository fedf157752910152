"""Kimi K2's format; what stands before the arguments is the call's id:

    <|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0
    <|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|>

Runs in: API process. Knows nothing of: requests, texts.
"""

from __future__ import annotations

from octavo.api.parsing.call_parts import Arguments, Fixed, Name
from octavo.api.parsing.definition import CallSpelling, ToolFormat

KIMI_K2 = ToolFormat(
    begins=("<|tool_calls_section_begin|>",),
    call=(
        Fixed("<|tool_call_begin|>"),
        Name(
            ends=("<|tool_call_argument_begin|>",),
            id_pattern=r"(?:functions\.)?(?P<name>.+):[0-9]+",
        ),
        Arguments(),
        Fixed("<|tool_call_end|>"),
    ),
    ends=("<|tool_calls_section_end|>",),
    spelling=CallSpelling(
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.",
        ":0<|tool_call_argument_begin|>",
        "<|tool_call_end|><|tool_calls_section_end|>",
        is_single=True,  # the number counts the calls
    ),
)
