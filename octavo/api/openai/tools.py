"""`tools` and `tool_choice` of a request, checked.

Neighbours: `octavo/api/openai/chat.py` (caller), `octavo/api/openai/reply_reading.py` (what becomes
of them). Runs in: API process, event loop. Owns: what a right list of tools is, and a right choice.
Knows nothing of: parsers, grammars, templates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from octavo.api.openai.protocol import NamedToolChoice, ToolChoice
from octavo.errors import InvalidParameter
from octavo.wording import printable, shown

#: OpenAI takes 128; agents with many servers of tools have more
MAX_TOOLS = 1024
#: OpenAI's, and what servers of tools put between their own name and a tool's
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,256}")
_NAME_RULE = "must have 1 to 256 letters, digits or characters of _ - . : /"


class Tool(msgspec.Struct, frozen=True):
    """A function that may be called.

    Attributes:
        parameters: a JSON schema as the client sent it; empty: there are none.
        strict: as the client sent it; None: nothing was said.
        field: where the parameters stand in the request.
    """

    name: str
    parameters: Mapping[str, Any]
    strict: bool | None
    field: str


class NamedChoice(msgspec.Struct, frozen=True):
    """The one tool that must be called."""

    name: str


Choice = Literal["none", "auto", "required"] | NamedChoice


def checked_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[Tool]:
    """The tools of a request.

    Raises:
        InvalidParameter: `param` says which tool and what of it.
    """
    if len(tools or ()) > MAX_TOOLS:
        raise _wrong("tools", f"may hold at most {MAX_TOOLS} tools, got {len(tools or ())}")
    checked = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools or ())]
    names = set()
    for index, tool in enumerate(checked):
        if tool.name in names:
            raise _wrong(f"tools[{index}].function.name", f"{tool.name} is there twice")
        names.add(tool.name)
    return checked


def checked_choice(choice: ToolChoice | None, tools: Sequence[Tool]) -> Choice:
    """What `tool_choice` means; without tools there is nothing to choose.

    Raises:
        InvalidParameter: a call is demanded of a tool that is not there.
    """
    if not tools:
        if choice in (None, "none", "auto"):
            return "none"
        raise InvalidParameter(
            "When using `tool_choice`, `tools` must be set. (parameter=tool_choice)",
            param="tool_choice",
        )
    if isinstance(choice, NamedToolChoice):
        name = choice.function.name
        if all(tool.name != name for tool in tools):
            raise InvalidParameter(
                "The tool specified in `tool_choice` does not match any of the specified `tools`: "
                f"{printable(name, 60)}. (parameter=tool_choice)",
                param="tool_choice",
            )
        return NamedChoice(name)
    return "auto" if choice is None else choice


def _tool(tool: Mapping[str, Any], field: str) -> Tool:
    kind = tool.get("type", "function")
    if kind != "function":
        raise _wrong(f"{field}.type", f"must be function, got {shown(kind)}")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise _wrong(f"{field}.function", "must be an object with a name")
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _wrong(f"{field}.function.name", f"{_NAME_RULE}, got {shown(name)}")
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise _wrong(f"{field}.function.parameters", "must be a JSON schema of an object (at /)")
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise _wrong(f"{field}.function.strict", "must be true or false")
    return Tool(name, parameters or {}, strict, f"{field}.function.parameters")


def _wrong(field: str, rule: str) -> InvalidParameter:
    return InvalidParameter(f"{field} {rule}. (parameter={field})", param=field)
