"""Structural tags as grammars, matched by the library."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.errors import InvalidParameter
from octavo.messages.grammar import Grammar
from octavo.structured_output.json_schema import prepare_schema
from octavo.structured_output.structural_tag import structural_tag
from tests.fakes.grammar_match import matches

TAG: dict[str, Any] = {
    "structures": [
        {"begin": "<f=a>", "schema": {"type": "object", "required": ["x"]}, "end": "</f>"},
        {"begin": "<f=b>", "schema": {"const": 1}, "end": ""},
    ],
    "triggers": ["<f="],
}


def json_tag(begin: str, schema: Any, end: str) -> dict[str, Any]:
    content = {"type": "json_schema", "json_schema": schema}
    return {"begin": begin, "content": content, "end": end}


def tag_grammar(tag: Any) -> Grammar:
    made = structural_tag(tag, "tag", prepare=lambda schema: schema, is_special=lambda t: False)
    return Grammar("lark", made.text, made.is_json)


@pytest.mark.parametrize(
    "tag",
    [
        TAG,
        {
            "type": "structural_tag",
            "format": {
                "type": "triggered_tags",
                "triggers": ["<f="],
                "tags": [
                    json_tag(one["begin"], one["schema"], one["end"]) for one in TAG["structures"]
                ],
            },
        },
    ],
)
def test_text_is_free_until_a_trigger(tag: Any) -> None:
    grammar = tag_grammar(tag)
    assert matches(grammar, "I say < what = I like")
    assert matches(grammar, 'See: <f=a>{"x": 1}</f> and <f=b>1')
    assert not matches(grammar, "See: <f=c>")
    assert not matches(grammar, "See: <f=a>{}</f>")
    assert not matches(grammar, "See: <f=b>2")


def test_a_trigger_that_is_a_token_of_its_own_is_named_as_one() -> None:
    tag = {"structures": [{"begin": "<|tool|>", "schema": {}, "end": ""}], "triggers": ["<|tool|>"]}
    text = structural_tag(tag, "tag", prepare=dict, is_special="<|tool|>".__eq__).text
    assert "part_0: TEXT <|tool|> %json {}" in text


@pytest.mark.parametrize(
    ("tag", "words"),
    [
        ({}, "must have structures"),
        (5, "must have structures"),
        ({"structures": [], "triggers": []}, "at least one"),
        ({"structures": [{"begin": "a", "end": ""}], "triggers": ["b"]}, "none of the triggers"),
        ({"structures": [{"begin": "a", "end": ""}], "triggers": [""]}, "must not be empty"),
        ({"structures": [{"begin": 1, "end": ""}], "triggers": ["b"]}, "must be strings"),
        ({"format": {"type": "any_text"}}, "'any_text' is not supported"),
    ],
)
def test_other_forms_of_tags_are_refused(tag: Any, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        tag_grammar(tag)


CALLS = [json_tag('<t>{"a": ', {"type": "integer"}, "}</t>"), json_tag("<u>", {"const": 1}, "")]


def separated(**options: Any) -> dict[str, Any]:
    return {"format": {"type": "tags_with_separator", "tags": CALLS, "separator": ";", **options}}


def test_tags_with_a_separator_are_all_there_is() -> None:
    some = tag_grammar(separated())
    assert some.is_json
    for right in ("", '<t>{"a": 1}</t>', '<u>1;<t>{"a": 22}</t>;<u>1'):
        assert matches(some, right)
    for wrong in ("text", '<t>{"a": 1}</t> ', "<u>1;", "<u>1<u>1", "<u>2"):
        assert not matches(some, wrong)
    at_least_one = tag_grammar(separated(at_least_one=True))
    assert not matches(at_least_one, "")
    assert matches(at_least_one, "<u>1;<u>1")
    one = tag_grammar(separated(at_least_one=True, stop_after_first=True))
    assert matches(one, "<u>1")
    assert not matches(one, "<u>1;<u>1")


def test_one_of_some_formats() -> None:
    answer = {"type": "json_schema", "json_schema": {"type": "object", "required": ["x"]}}
    calls = separated(at_least_one=True)["format"]
    grammar = tag_grammar({"format": {"type": "or", "elements": [calls, answer]}})
    assert grammar.is_json
    assert matches(grammar, "<u>1")
    assert matches(grammar, '{"x": 2}')
    assert not matches(grammar, '<u>1{"x": 2}')
    triggered = {"type": "triggered_tags", "triggers": ["<"], "tags": CALLS}
    with_text = {"format": {"type": "or", "elements": [answer, triggered]}}
    assert not tag_grammar(with_text).is_json


def test_tokens_that_are_no_text_are_named_in_tags() -> None:
    tag = {
        "format": {
            "type": "tags_with_separator",
            "tags": [json_tag("<|a|>x<b>", {}, "<|a|><|c|>")],
            "separator": "<|a|>",
        }
    }
    text = structural_tag(tag, "tag", prepare=dict, is_special="<|a|>".__eq__).text
    assert 'tag_0: <|a|> "x<b>" %json {} <|a|> "<|c|>"' in text
    assert "(tag_0 (<|a|> tag_0)*)?" in text


def test_a_mistake_in_a_schema_names_the_field_it_comes_from() -> None:
    tags = [json_tag("a", {}, ""), json_tag("b", {"not": {}}, "")]
    with pytest.raises(InvalidParameter, match=r"at /not") as caught:
        structural_tag(
            {"format": {"type": "tags_with_separator", "tags": tags}},
            "tools",
            prepare=lambda schema: prepare_schema(
                schema, allows_whitespace=True, whitespace_pattern=None, is_closed=False
            ),
            is_special=lambda t: False,
            schema_origins=["tools[0].function.parameters", "tools[1].function.parameters"],
        )
    assert caught.value.param == "tools[1].function.parameters"


@pytest.mark.parametrize(
    "form",
    [
        {"type": "tags_with_separator", "tags": []},
        {"type": "tags_with_separator", "tags": CALLS, "separator": 1},
        {"type": "or", "elements": []},
        {"type": "or", "elements": [{"type": "any"}]},
        {"type": "json_schema"},
    ],
)
def test_other_forms_of_formats_are_refused(form: Any) -> None:
    with pytest.raises(InvalidParameter):
        tag_grammar({"format": form})
