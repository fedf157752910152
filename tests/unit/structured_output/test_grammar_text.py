"""From what a request says to one grammar."""

from __future__ import annotations

import json
from typing import Any

import pytest

from octavo.config.engine import StructuredOutputsConfig
from octavo.errors import InvalidParameter
from octavo.messages.grammar import Grammar
from octavo.sampling_params import StructuredOutputsParams
from octavo.structured_output.grammar_text import MAX_CHARACTERS, make_grammar
from tests.fakes.grammar_match import matches


def make(config: StructuredOutputsConfig | None = None, **params: Any) -> Grammar:
    return make_grammar(
        StructuredOutputsParams(**params),
        config or StructuredOutputsConfig(),
        {"<|tool|>"}.__contains__,
    ).grammar


@pytest.mark.parametrize(
    ("params", "right", "wrong"),
    [
        ({"json": {"type": "integer"}}, "12", "1.5"),
        ({"json": '{"type": "integer"}'}, "12", "1.5"),
        ({"json_object": True}, "{}", "[]"),
        ({"regex": "[ab]+"}, "abba", "c"),
        ({"choice": ["yes", "no"]}, "no", "none"),
        ({"grammar": 'root ::= "a" "b"'}, "ab", "a"),
        ({"grammar": 'start: "a" "b"'}, "ab", "a"),
        (
            {"structural_tag": {"structures": [{"begin": "<", "end": ">"}], "triggers": ["<"]}},
            "text <1>",
            "text <1",
        ),
    ],
)
def test_each_kind_constrains(params: dict[str, Any], right: str, wrong: str) -> None:
    grammar = make(**params)
    assert matches(grammar, right)
    assert not matches(grammar, wrong)


def test_options_of_the_operator_and_of_the_request_add_up() -> None:
    schema = {"properties": {"a": {}}, "type": "object"}
    no_space = StructuredOutputsConfig(disable_any_whitespace=True)
    assert matches(make(json=schema), '{"a": 1}')
    for grammar in (make(no_space, json=schema), make(json=schema, disable_any_whitespace=True)):
        assert matches(grammar, '{"a":1}')
        assert not matches(grammar, '{"a": 1}')
    closed = StructuredOutputsConfig(disable_additional_properties=True)
    assert matches(make(json=schema), '{"b":1}')
    assert not matches(make(closed, json=schema), '{"b":1}')
    assert not matches(make(json=schema, disable_additional_properties=True), '{"b":1}')
    assert matches(make(json=schema, whitespace_pattern="_"), '{"a":_1}')


def test_parts_of_structural_tags_are_bounded_like_other_json() -> None:
    tag = {"structures": [{"begin": "<", "end": ">"}], "triggers": ["<"]}
    grammar = make(structural_tag=json.dumps(tag))
    assert matches(grammar, "<[" + " " * 8 + "]>")
    assert not matches(grammar, "<[" + " " * 9 + "]>")


@pytest.mark.parametrize(
    ("params", "param", "words"),
    [
        ({"json": "{"}, "structured_outputs.json", "not valid JSON"),
        ({"json": '["a"]'}, "structured_outputs.json", "must be an object"),
        ({"json": {"type": "x"}}, "structured_outputs.json", "(at /type)"),
        ({"json": {"const": float("nan")}}, "structured_outputs.json", "cannot be written"),
        ({"regex": "a\0"}, "structured_outputs.regex", "NUL"),
        ({"choice": ["\ud800"]}, "structured_outputs.choice", "surrogate"),
        ({"regex": "a" * (MAX_CHARACTERS + 1)}, "structured_outputs.regex", "at most 262144"),
        ({"json": {"enum": ["a" * MAX_CHARACTERS]}}, "structured_outputs.json", "at most 262144"),
        ({"structural_tag": "[1]"}, "structured_outputs.structural_tag", "must have structures"),
    ],
)
def test_mistakes_name_the_field(params: dict[str, Any], param: str, words: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        make(**params)
    assert caught.value.param == param
    assert words in caught.value.message


def test_the_field_of_the_request_is_named_as_the_client_knows_it() -> None:
    with pytest.raises(InvalidParameter) as caught:
        make(json={"not": {}}, origin="response_format.json_schema.schema")
    assert caught.value.param == "response_format.json_schema.schema"
    assert "(at /not)" in caught.value.message
