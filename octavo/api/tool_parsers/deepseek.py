"""DeepSeek's formats, with the full-width bars and low lines of its special tokens. V3 and R1:

    <|tool_calls_begin|><|tool_call_begin|>function<|tool_sep|>get_weather
    ```json
    {"city": "Paris"}
    ```<|tool_call_end|><|tool_calls_end|>

V3.1 writes `get_weather<|tool_sep|>{"city": "Paris"}` between the marks of a call.

Runs in: API process. Knows nothing of: requests, texts.
"""

from __future__ import annotations

from octavo.api.parsing.call_parts import Arguments, CallPart, Fixed, Name
from octavo.api.parsing.definition import ToolFormat


def _token(words: str) -> str:
    """A special token as DeepSeek's vocabulary spells it."""
    return "<\uff5c" + words.replace(" ", "\u2581") + "\uff5c>"


_SEPARATOR = _token("tool sep")


def _format(*inside: CallPart) -> ToolFormat:
    return ToolFormat(
        begins=(_token("tool calls begin"),),
        call=(Fixed(_token("tool call begin")), *inside, Fixed(_token("tool call end"))),
        ends=(_token("tool calls end"),),
    )


DEEPSEEK_V3 = _format(
    Fixed("function"),
    Fixed(_SEPARATOR),
    Name(before=("```json", "{")),
    Fixed("```json", optional=True),
    Arguments(),
    Fixed("```", optional=True),
)
DEEPSEEK_V31 = _format(Name(ends=(_SEPARATOR,)), Arguments())
