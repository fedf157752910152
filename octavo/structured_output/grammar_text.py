"""What a request asks for, as one grammar.

Runs in: the API process, in a thread. Uses: `json_schema.py`, `lark_grammar.py`,
`structural_tag.py`.
Owns: limits of size. Knows nothing of: the library's interface, requests in general.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from octavo.config.engine import StructuredOutputsConfig
from octavo.errors import InvalidParameter
from octavo.messages.grammar import Grammar
from octavo.sampling_params import StructuredOutputsParams
from octavo.structured_output.json_schema import SchemaError, prepare_schema
from octavo.structured_output.lark_grammar import any_grammar, choice_grammar
from octavo.structured_output.structural_tag import structural_tag
from octavo.wording import first_line

MAX_CHARACTERS = 262_144


class WrittenGrammar(msgspec.Struct, frozen=True):
    """A grammar, and the schemas and grammars in it, each with the field that it comes from."""

    grammar: Grammar
    schemas: list[tuple[str, Grammar]] = []


def make_grammar(
    params: StructuredOutputsParams,
    config: StructuredOutputsConfig,
    is_special: Callable[[str], bool],
) -> WrittenGrammar:
    """The grammar of `params`, which has exactly one kind.

    Args:
        config: what the operator has set for all requests.
        is_special: True for a token that is no text.

    Raises:
        InvalidParameter: it cannot be served; the sentence says where, `param` names the field.
    """
    kind, value = params.constraint
    field = params.origin if params.origin != "structured_outputs" else f"{params.origin}.{kind}"

    def prepare(schema: Any) -> dict[str, Any]:
        return prepare_schema(
            schema,
            allows_whitespace=not (params.disable_any_whitespace or config.disable_any_whitespace),
            whitespace_pattern=params.whitespace_pattern,
            is_closed=params.disable_additional_properties or config.disable_additional_properties,
        )

    schemas: list[tuple[str, Grammar]] = []
    if isinstance(value, str):
        _check_text(value, field)
    try:
        if kind == "json":
            grammar = _json_grammar(prepare(_decoded(value, field)), field)
        elif kind == "json_object":
            grammar = _json_grammar(prepare({"type": "object"}), field)
        elif kind == "regex":
            grammar = Grammar("regex", value)
        elif kind == "choice":
            grammar = Grammar("lark", choice_grammar(value))
        elif kind == "grammar":
            grammar = Grammar("lark", any_grammar(value, field))
        else:
            assert kind == "structural_tag", kind
            tag = structural_tag(
                _decoded(value, field),
                field,
                prepare=prepare,
                is_special=is_special,
                schema_origins=params.schema_origins,
            )
            schemas = [(origin, _json_grammar(schema, origin)) for origin, schema in tag.schemas]
            schemas += [(origin, Grammar("lark", text)) for origin, text in tag.grammars]
            grammar = Grammar("lark", tag.text, tag.is_json)
    except SchemaError as error:
        raise InvalidParameter(f"{field}: {error.message}", param=field) from None
    _check_text(grammar.text, field)
    return WrittenGrammar(grammar, schemas)


def _decoded(value: Any, field: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (ValueError, RecursionError) as error:
        raise InvalidParameter(
            f"{field} is not valid JSON: {first_line(error)}", param=field
        ) from None


def _json_grammar(schema: dict[str, Any], field: str) -> Grammar:
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)  # integers of any size
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParameter(
            f"{field} cannot be written as JSON: {first_line(error)}", param=field
        ) from None
    return Grammar("json", text, is_json=True)


def _check_text(text: str, field: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise InvalidParameter(
            f"{field} has {len(text)} characters; at most {MAX_CHARACTERS} are compiled.",
            param=field,
        )
    if "\0" in text:
        raise InvalidParameter(f"{field} must not have the character NUL.", param=field)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidParameter(
            f"{field} has half of a surrogate pair, which is no character.", param=field
        )
