"""Tools on the wire: how a request chooses one, and how a reply calls one.

Runs in: API process. Owns: names, types and defaults on the wire.
Knows nothing of: the engine, HTTP.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

# ---- requests -----------------------------------------------------------------------------------


class ToolName(msgspec.Struct):
    """A tool by its name."""

    name: str


class ToolReference(msgspec.Struct, kw_only=True):
    """One of the request's tools; `function` or `custom` is there, as `type` says."""

    type: Literal["function", "custom"] = "function"
    function: ToolName | None = None
    custom: ToolName | None = None


class AllowedTools(msgspec.Struct, kw_only=True):
    """The tools of which the model may (`auto`) or must (`required`) call some."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[ToolReference], Meta(extra_json_schema={"minItems": 1})]


class ToolChoiceObject(msgspec.Struct, kw_only=True):
    """A tool that must be called, or those that may be; which field is there says `type`."""

    type: Literal["function", "custom", "allowed_tools"] = "function"
    function: ToolName | None = None
    custom: ToolName | None = None
    allowed_tools: AllowedTools | None = None


ToolChoice = Literal["none", "auto", "required"] | ToolChoiceObject

# ---- replies ------------------------------------------------------------------------------------


class FunctionCall(msgspec.Struct):
    """What is called; `arguments` is a JSON object as text, as the model wrote it."""

    name: str
    arguments: str


class CustomCall(msgspec.Struct):
    """What is called; `input` is any text."""

    name: str
    input: str


class ToolCall(msgspec.Struct):
    """One call of a tool: `function` or `custom` is there, as `type` says."""

    id: str
    function: FunctionCall | UnsetType = UNSET
    type: Literal["function", "custom"] = "function"
    custom: CustomCall | UnsetType = UNSET


class FunctionCallDelta(msgspec.Struct):
    """The name when a call begins, then more and more of the arguments."""

    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class CustomCallDelta(msgspec.Struct):
    """The name when a call begins, then more and more of the input."""

    name: str | UnsetType = UNSET
    input: str | UnsetType = UNSET


class ToolCallDelta(msgspec.Struct):
    """What is new in one call; `id` and `type` are there when it begins."""

    index: int
    id: str | UnsetType = UNSET
    type: Literal["function", "custom"] | UnsetType = UNSET
    function: FunctionCallDelta | UnsetType = UNSET
    custom: CustomCallDelta | UnsetType = UNSET
