"""Calls that a request demands: what the output must look like, in the model's own format.

Where the format's arguments are not JSON, or its marks cannot be demanded, calls are JSON lists:
`[{"name": "get_weather", "parameters": {"city": "Paris"}}]`, as in vLLM.

Runs in: API process. Uses: nothing of `octavo/structured_output`, whose structural tags it writes.
Owns: the form of demanded calls. Knows nothing of: wire formats.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from octavo.api.parsing.call_parts import Envelope
from octavo.api.parsing.definition import CallSpelling, ToolFormat

#: calls for models whose own format cannot be demanded
JSON_LIST = ToolFormat(
    bare=("[",),
    brackets=True,
    call=(Envelope(),),
    spelling=CallSpelling('[{"name": "', '", "parameters": ', "}]"),
)


class ForcedCalls(msgspec.Struct, frozen=True):
    """
    Attributes:
        structural_tag: for `StructuredOutputsParams`; its schemas are the tools', in their order.
        is_own_format: the model's own format; else `JSON_LIST`.
    """

    structural_tag: dict[str, Any]
    is_own_format: bool


def forced_calls(
    spelling: CallSpelling | None,
    tools: Mapping[str, Any],
    *,
    parallel: bool,
    texts: Mapping[str, tuple[str, str]],
) -> ForcedCalls:
    """What an output of one or more calls must look like.

    Args:
        spelling: how the model writes a call; None: it has no way that can be demanded.
        tools: JSON schemas of the parameters by the name of the tool; at least one.
        parallel: more calls may follow the first.
        texts: tools with one argument, a text: its name and its grammar in Lark's notation.
    """
    form = spelling or JSON_LIST.spelling
    assert form is not None
    tags = [
        {
            "begin": f"{form.before_name}{_spelled(name)}{form.after_name}",
            "content": _content(parameters, texts.get(name)),
            "end": form.end,
        }
        for name, parameters in tools.items()
    ]
    return ForcedCalls(
        {
            "format": {
                "type": "tags_with_separator",
                "tags": tags,
                "separator": form.separator,
                "at_least_one": True,
                "stop_after_first": not parallel or form.is_single,
            }
        },
        is_own_format=spelling is not None,
    )


def _content(parameters: Any, text: tuple[str, str] | None) -> dict[str, Any]:
    if text is not None:
        return {"type": "text_argument", "name": text[0], "grammar": text[1]}
    return {"type": "json_schema", "json_schema": _object_schema(parameters)}


def _spelled(name: str) -> str:
    """A name inside of quotes; names of tools rarely have characters that need it."""
    return json.dumps(name, ensure_ascii=False)[1:-1]


def _object_schema(parameters: Any) -> dict[str, Any]:
    """Arguments are an object, also where the schema does not say so."""
    if not parameters:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    if not isinstance(parameters, Mapping) or "type" in parameters or "$ref" in parameters:
        return parameters  # type: ignore[return-value]  # the grammar's maker refuses what is wrong
    return {"type": "object", **parameters}
