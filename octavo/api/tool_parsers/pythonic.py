"""Calls as Python writes them, in a list or one per line:

    [get_weather(city="Paris"), get_time(zone="CET")]

Runs in: API process. Knows nothing of: requests, texts.
"""

from __future__ import annotations

from octavo.api.parsing.argument_parts import PythonArguments
from octavo.api.parsing.call_parts import CallPart, Name
from octavo.api.parsing.definition import ToolFormat

_CALL: tuple[CallPart, ...] = (Name(ends=("(",)), PythonArguments())

#: Llama 3.2, ToolACE; the reply begins with the list
PYTHONIC = ToolFormat(bare=("[",), brackets=True, call=_CALL, only_at_start=True, only_known=True)
LLAMA4_PYTHONIC = ToolFormat(
    begins=("<|python_start|>",),
    bare=("[",),
    brackets=True,
    call=_CALL,
    ends=("<|python_end|>",),
    only_at_start=True,
    only_known=True,
)
#: LiquidAI's LFM2
LFM2 = ToolFormat(
    begins=("<|tool_call_start|>",), brackets=True, call=_CALL, ends=("<|tool_call_end|>",)
)
OLMO3 = ToolFormat(begins=("<function_calls>",), call=_CALL, ends=("</function_calls>",))
#: a list that is known to be one
CALL_LIST = ToolFormat(bare=("[",), brackets=True, call=_CALL, only_at_start=True)
