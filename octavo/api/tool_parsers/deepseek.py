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
from octavo.api.parsing.definition import CallSpelling, ToolFormat


def _token(words: str) -> str:
    """A special token as DeepSeek's vocabulary spells it."""
    return "<\uff5c" + words.replace(" ", "\u2581") + "\uff5c>"


_SECTION_BEGIN, _SECTION_END = _token("tool calls begin"), _token("tool calls end")
_CALL_BEGIN, _CALL_END = _token("tool call begin"), _token("tool call end")
_SEPARATOR = _token("tool sep")


def _format(*inside: CallPart, before_name: str, after_name: str, end: str) -> ToolFormat:
    return ToolFormat(
        begins=(_SECTION_BEGIN,),
        call=(Fixed(_CALL_BEGIN), *inside, Fixed(_CALL_END)),
        ends=(_SECTION_END,),
        spelling=CallSpelling(
            _SECTION_BEGIN + _CALL_BEGIN + before_name,
            after_name,
            end + _CALL_END + _SECTION_END,
        ),
    )


DEEPSEEK_V3 = _format(
    Fixed("function"),
    Fixed(_SEPARATOR),
    Name(before=("```json", "{")),
    Fixed("```json", optional=True),
    Arguments(),
    Fixed("```", optional=True),
    before_name="function" + _SEPARATOR,
    after_name="\n```json\n",
    end="\n```",
)
DEEPSEEK_V31 = _format(
    Name(ends=(_SEPARATOR,)), Arguments(), before_name="", after_name=_SEPARATOR, end=""
)
