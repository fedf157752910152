"""Which schemas are taken, and what the library gets to see."""

from __future__ import annotations

import json
from typing import Any

import pytest

from octavo.messages.grammar import Grammar
from octavo.structured_output.json_schema import SchemaError, prepare_schema
from tests.fakes.grammar_match import matches


def prepare(schema: Any, **options: Any) -> dict[str, Any]:
    settings = {"allows_whitespace": True, "whitespace_pattern": None, "is_closed": False}
    prepared = prepare_schema(schema, **{**settings, **options})
    prepared.pop("x-guidance")
    return prepared


@pytest.mark.parametrize(
    ("schema", "pointer", "words"),
    [
        ([1], "", "must be an object"),
        (False, "", "allows nothing"),
        ({"type": "objekt"}, "/type", "'objekt'"),
        ({"type": ["string", 3]}, "/type", "got 3"),
        ({"properties": {"a": {"type": "x"}}}, "/properties/a/type", "'x'"),
        ({"properties": []}, "/properties", "an object of schemas"),
        ({"properties": {"a/b~": 5}}, "/properties/a~1b~0", "true or false"),
        ({"items": {"anyOf": []}}, "/items/anyOf", "a list of schemas"),
        ({"required": "a"}, "/required", "a list of names"),
        ({"enum": []}, "/enum", "a list of values"),
        ({"minLength": -1}, "/minLength", "at least 0"),
        ({"multipleOf": 0}, "/multipleOf", "positive"),
        ({"minimum": "1"}, "/minimum", "a number"),
        ({"exclusiveMinimum": True}, "/exclusiveMinimum", "old drafts"),
        ({"pattern": 1}, "/pattern", "a string"),
        ({"$ref": "#/$defs/no"}, "/$ref", "leads nowhere"),
        ({"$ref": "https://example.com/x"}, "/$ref", "nothing is fetched"),
        ({"not": {}}, "/not", "'not'"),
        ({"if": {}, "then": {}}, "/if", "'if'"),
        ({"allOf": [{"contains": {}}]}, "/allOf/0/contains", "'contains'"),
        ({"$defs": {"a": {"uniqueItems": True}}}, "/$defs/a/uniqueItems", "'uniqueItems'"),
        ({"x-guidance": {}}, "/x-guidance", "'x-guidance'"),
        ({"minProperties": 2, "required": ["a"]}, "/minProperties", "required"),
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused_with_its_place(
    schema: Any, pointer: str, words: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        prepare(schema)
    assert caught.value.pointer == pointer
    assert words in caught.value.message
    assert f"(at {pointer or '/'})" in caught.value.message


@pytest.mark.parametrize(
    "schema",
    [
        {"uniqueItems": False},
        {"not": False},
        {"if": {"type": "string"}},
        {"then": {"type": "string"}},
        {"minContains": 3},
        {"dependentRequired": {}},
        {"unevaluatedProperties": True},
    ],
)
def test_keywords_that_ask_for_nothing_are_left_out(schema: Any) -> None:
    assert prepare({"type": "array", **schema}) == {"type": "array"}


def test_true_is_any_value() -> None:
    assert prepare(True) == {}


def test_remarks_and_unknown_keywords_stay_and_unknown_formats_go() -> None:
    remarks = {"title": "t", "description": "d", "mine": [1], "default": {"not": 1}}
    assert prepare({**remarks, "format": "password"}) == remarks
    assert prepare({"type": "string", "format": "date"})["format"] == "date"


def test_the_schema_itself_is_not_changed() -> None:
    schema = {"properties": {"a": {"uniqueItems": False}}, "oneOf": [{"$ref": "#"}]}
    copy = {"properties": {"a": {"uniqueItems": False}}, "oneOf": [{"$ref": "#"}]}
    prepare(schema, is_closed=True)
    assert schema == copy


def test_closed_objects_have_no_other_properties_unless_the_schema_says_so() -> None:
    inner = {"properties": {"b": {}}}
    prepared = prepare({"properties": {"a": inner}, "patternProperties": {}}, is_closed=True)
    assert prepared["additionalProperties"] is False
    assert prepared["properties"]["a"]["additionalProperties"] is False
    opened = prepare({**inner, "additionalProperties": {"type": "null"}}, is_closed=True)
    assert opened["additionalProperties"] == {"type": "null"}
    assert prepare({"type": "object"}, is_closed=True) == {"type": "object"}


def test_branches_of_one_of_are_spelled_out_so_that_they_can_be_told_apart() -> None:
    cat = {"type": "object", "properties": {"kind": {"const": "cat"}}, "required": ["kind"]}
    prepared = prepare(
        {"$defs": {"Cat": cat}, "oneOf": [{"$ref": "#/$defs/Cat"}, {"type": "null"}]}
    )
    assert prepared["oneOf"] == [cat, {"type": "null"}]


def test_a_recursive_union_with_kinds_can_be_served() -> None:
    def animal(kind: str) -> dict[str, Any]:
        friend = {"oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}
        return {
            "type": "object",
            "properties": {"kind": {"const": kind}, "friend": friend},
            "required": ["kind"],
        }

    schema = {
        "$defs": {"Cat": animal("cat"), "Dog": animal("dog")},
        "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
    }
    grammar = Grammar("json", json.dumps(prepare(schema)))
    friends = {"kind": "cat", "friend": {"kind": "dog", "friend": {"kind": "cat"}}}
    assert matches(grammar, json.dumps(friends))
    assert not matches(grammar, json.dumps({"kind": "cat", "friend": {"kind": "cow"}}))


def test_chains_of_unions_are_not_multiplied() -> None:
    def union(number: int) -> dict[str, Any]:
        return {"oneOf": [{"$ref": f"#/$defs/d{number + 1}"}, {"$ref": f"#/$defs/e{number + 1}"}]}

    schema: dict[str, Any] = {"$defs": {}, **union(0)}
    for number in range(40):
        for name in "de":
            inner = {"properties": {"k": {"const": name}, "v": union(number)}, "required": ["k"]}
            schema["$defs"][f"{name}{number}"] = inner
    schema["$defs"] |= {"d40": {"type": "null"}, "e40": {"type": "string"}}
    assert len(json.dumps(prepare(schema))) < 4 * len(json.dumps(schema))


def test_references_go_through_escapes_and_lists() -> None:
    schema = {
        "$defs": {"a/b c": {}},
        "allOf": [{"$ref": "#/$defs/a~1b%20c"}, {"$ref": "#/allOf/0"}],
    }
    assert prepare(schema)["allOf"][0] == {"$ref": "#/$defs/a~1b%20c"}


def test_a_schema_may_be_nested_64_deep() -> None:
    def nested(levels: int) -> dict[str, Any]:
        schema: dict[str, Any] = {}
        for _ in range(levels - 1):
            schema = {"items": schema}
        return schema

    prepare(nested(64))
    with pytest.raises(SchemaError, match="more than 64 deep"):
        prepare(nested(65))


def test_whitespace_is_bounded_chosen_or_forbidden() -> None:
    def options(**settings: Any) -> Any:
        given = {"allows_whitespace": True, "whitespace_pattern": None, "is_closed": False}
        return prepare_schema({}, **{**given, **settings})["x-guidance"]

    assert options() == {"whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,8}"}
    assert options(whitespace_pattern=" ?") == {"whitespace_pattern": " ?"}
    assert options(allows_whitespace=False) == {"whitespace_flexible": False}
