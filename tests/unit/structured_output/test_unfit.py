"""Where the mistake is that the library found."""

from __future__ import annotations

import json
from typing import Any

import pytest

from octavo.errors import InvalidParameter
from octavo.messages.grammar import Grammar
from octavo.structured_output.unfit import explain
from tests.fakes.grammar_match import byte_backend


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": {"a": {"items": {"pattern": "(?=x)"}}}}, "/properties/a/items"),
        ({"$defs": {"x": {"oneOf": [{}, {"type": "null"}]}}, "$ref": "#/$defs/x"}, "/$defs/x"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "/"),
        ({"allOf": [{"type": "null"}, {"type": "string"}]}, "/"),
    ],
)
def test_the_smallest_part_with_the_mistake_is_named(schema: Any, place: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        explain(byte_backend(), Grammar("json", json.dumps(schema)), "the.field")
    assert caught.value.message.endswith(f"(at {place})")
    assert caught.value.message.startswith("the.field cannot be served: ")
    assert caught.value.param == "the.field"


def test_one_of_that_overlaps_says_what_would_do() -> None:
    grammar = Grammar("json", json.dumps({"oneOf": [{"type": "string"}, {"type": "string"}]}))
    with pytest.raises(InvalidParameter, match="or use anyOf"):
        explain(byte_backend(), grammar, "f")


def test_other_grammars_have_the_words_of_the_library() -> None:
    with pytest.raises(InvalidParameter, match=r"^f cannot be served: .*unclosed group"):
        explain(byte_backend(), Grammar("regex", "("), "f")


def test_a_right_grammar_passes() -> None:
    explain(byte_backend(), Grammar("json", "{}"), "f")


def test_a_schema_in_a_grammar_is_blamed_with_its_field() -> None:
    schemas = [
        ("tools[0].function.parameters", Grammar("json", "{}")),
        (
            "tools[1].function.parameters",
            Grammar("json", '{"properties": {"a": {"pattern": "("}}}'),
        ),
    ]
    text = "start: " + " | ".join(f"%json {schema.text}" for _, schema in schemas)
    with pytest.raises(InvalidParameter, match=r"\(at /properties/a\)") as caught:
        explain(byte_backend(), Grammar("lark", text), "tools", schemas)
    assert caught.value.param == "tools[1].function.parameters"
