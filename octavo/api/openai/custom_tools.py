"""Tools whose input is a text of any form (`type: "custom"`), for models that know only functions.

A custom tool is shown to the model as a function with one argument, `input`, a text. What the model
writes into it is the call's input.

    tool of a request -> `text_format` (what its input must be), `as_function` (what templates see)
    past call         -> `as_function_call`
    reply             -> `TextInput` (arguments of the function -> the text)

Neighbours: `octavo/api/openai/tools.py`, `octavo/api/openai/messages.py`, `octavo/api/assembler.py`
(a `TextInput` per call).
Runs in: API process, event loop. Owns: that form. Knows nothing of: parsers, templates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from octavo.errors import InvalidParameter
from octavo.wording import shown

#: the argument that is the input
INPUT: Final = "input"
_SCHEMA: Final = {
    "type": "object",
    "properties": {INPUT: {"type": "string"}},
    "required": [INPUT],
    "additionalProperties": False,
}
_SYNTAXES: Final = {"lark": "Lark grammar", "regex": "regular expression"}


class TextFormat(msgspec.Struct, frozen=True):
    """What the input of a custom tool must be.

    Attributes:
        lark: a grammar in Lark's notation; None: any text.
        words: for the model; empty: nothing to say.
        field: where it stands in the request.
    """

    lark: str | None
    words: str
    field: str


def text_format(custom: Mapping[str, Any], field: str) -> TextFormat:
    """The `format` of a custom tool.

    Args:
        field: of the tool.

    Raises:
        InvalidParameter: `param` says what of it is wrong.
    """
    field = f"{field}.custom.format"
    form = custom.get("format")
    if form is None:
        return TextFormat(None, "", field)
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "text":
        return TextFormat(None, "", field)
    if kind != "grammar":
        raise _wrong(f"{field}.type", f"must be text or grammar, got {shown(kind)}")
    grammar = form.get("grammar")
    if not isinstance(grammar, dict):
        raise _wrong(f"{field}.grammar", "must be an object with definition and syntax")
    syntax, definition = grammar.get("syntax"), grammar.get("definition")
    if syntax not in _SYNTAXES:
        raise _wrong(f"{field}.grammar.syntax", f"must be lark or regex, got {shown(syntax)}")
    if not isinstance(definition, str) or not definition:
        raise _wrong(f"{field}.grammar.definition", "must be a non-empty string")
    lark = definition
    if syntax == "regex":
        from octavo.structured_output.quoted_lark import regex_as_lark  # rarely asked for

        lark = regex_as_lark(definition)
    words = f"The input must match this {_SYNTAXES[syntax]}:\n{definition}"
    return TextFormat(lark, words, f"{field}.grammar.definition")


def text_schema() -> dict[str, Any]:
    """The JSON schema of the function's arguments."""
    return dict(_SCHEMA)


def as_function(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool of a request as templates see it; others than custom ones are left as they are."""
    custom = tool.get("custom")
    if tool.get("type") != "custom" or not isinstance(custom, dict):
        return tool
    said = custom.get("description")
    parts = [said if isinstance(said, str) else "", text_format(custom, "tools[]").words]
    function = {
        "name": custom.get("name"),
        "description": "\n".join(filter(None, parts)),
        "parameters": text_schema(),
    }
    return {"type": "function", "function": function}


def as_function_call(call: Any) -> Any:
    """A past call of a message as one of a function; others than custom ones are left."""
    if not isinstance(call, dict) or call.get("type") != "custom":
        return call
    custom = call.get("custom")
    if not isinstance(custom, dict) or not isinstance(custom.get("input"), str):
        return call
    others = {key: value for key, value in call.items() if key != "custom"}
    function = {"name": custom.get("name"), "arguments": {INPUT: custom["input"]}}
    return {**others, "type": "function", "function": function}


def _wrong(field: str, rule: str) -> InvalidParameter:
    return InvalidParameter(f"{field} {rule}. (parameter={field})", param=field)
