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

from octavo.api.openai.custom_tools import text_format, text_schema
from octavo.api.openai.tool_protocol import (
    AllowedTools,
    ToolChoice,
    ToolChoiceObject,
    ToolName,
    ToolReference,
)
from octavo.errors import InvalidParameter
from octavo.wording import printable, shown

#: OpenAI takes 128; agents with many servers of tools have more
MAX_TOOLS = 1024
#: OpenAI's, and what servers of tools put between their own name and a tool's
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,256}")
_NAME_RULE = "must have 1 to 256 letters, digits or characters of _ - . : /"


class Tool(msgspec.Struct, frozen=True):
    """A function that may be called, or a custom tool.

    Attributes:
        parameters: a JSON schema as the client sent it; empty: there are none.
        strict: as the client sent it; None: nothing was said.
        field: where the parameters stand in the request.
        is_custom: the call's input is a text, the only argument of the function that it is here.
        grammar: of that text, in Lark's notation; None: any text.
    """

    name: str
    parameters: Mapping[str, Any]
    strict: bool | None
    field: str
    is_custom: bool = False
    grammar: str | None = None


class NamedChoice(msgspec.Struct, frozen=True):
    """The one tool that must be called."""

    name: str


class AllowedChoice(msgspec.Struct, frozen=True):
    """Some of the tools, of which the model may call some, or must."""

    names: frozenset[str]
    is_required: bool


Choice = Literal["none", "auto", "required"] | NamedChoice | AllowedChoice


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
            kind = "custom" if tool.is_custom else "function"
            raise _wrong(f"tools[{index}].{kind}.name", f"{tool.name} is there twice")
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
    if isinstance(choice, ToolChoiceObject):
        if choice.type == "allowed_tools":
            return _allowed(choice.allowed_tools, tools)
        return NamedChoice(_named(choice, tools, "tool_choice"))
    return "auto" if choice is None else choice


def _allowed(allowed: AllowedTools | None, tools: Sequence[Tool]) -> AllowedChoice:
    field = "tool_choice.allowed_tools"
    if allowed is None:
        raise _wrong(field, "must be an object with mode and tools")
    if not allowed.tools:
        raise _wrong(f"{field}.tools", "must name at least one tool")
    names = [
        _named(reference, tools, f"{field}.tools[{index}]")
        for index, reference in enumerate(allowed.tools)
    ]
    return AllowedChoice(frozenset(names), allowed.mode == "required")


def _named(reference: ToolReference | ToolChoiceObject, tools: Sequence[Tool], field: str) -> str:
    """The name of one of the tools, of the kind that `type` says."""
    is_custom = reference.type == "custom"
    named: ToolName | None = reference.custom if is_custom else reference.function
    if named is None:
        raise _wrong(f"{field}.{reference.type}", "must be an object with the name of a tool")
    if all((tool.name, tool.is_custom) != (named.name, is_custom) for tool in tools):
        raise InvalidParameter(
            f"The tool specified in `{field}` does not match any of the specified `tools`: "
            f"{printable(named.name, 60)}. (parameter={field})",
            param=field,
        )
    return named.name


def _tool(tool: Mapping[str, Any], field: str) -> Tool:
    kind = tool.get("type", "function")
    if kind not in ("function", "custom"):
        raise _wrong(f"{field}.type", f"must be function or custom, got {shown(kind)}")
    function = tool.get(kind)
    if not isinstance(function, dict):
        raise _wrong(f"{field}.{kind}", "must be an object with a name")
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _wrong(f"{field}.{kind}.name", f"{_NAME_RULE}, got {shown(name)}")
    if kind == "custom":
        form = text_format(function, field)
        return Tool(name, text_schema(), True, form.field, is_custom=True, grammar=form.lark)
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise _wrong(f"{field}.function.parameters", "must be a JSON schema of an object (at /)")
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise _wrong(f"{field}.function.strict", "must be true or false")
    return Tool(name, parameters or {}, strict, f"{field}.function.parameters")


def _wrong(field: str, rule: str) -> InvalidParameter:
    return InvalidParameter(f"{field} {rule}. (parameter={field})", param=field)
