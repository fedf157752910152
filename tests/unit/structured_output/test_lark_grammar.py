"""Choices, GBNF and structural tags as grammars, matched by the library."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.errors import InvalidParameter
from octavo.messages.grammar import Grammar
from octavo.structured_output.lark_grammar import (
    any_grammar,
    choice_grammar,
    structural_tag_grammar,
)
from tests.fakes.grammar_match import matches

TAG = {
    "structures": [
        {"begin": "<f=a>", "schema": {"type": "object", "required": ["x"]}, "end": "</f>"},
        {"begin": "<f=b>", "schema": {"const": 1}, "end": ""},
    ],
    "triggers": ["<f="],
}


def lark(text: str) -> Grammar:
    return Grammar("lark", text)


def tag_grammar(tag: Any) -> Grammar:
    text = structural_tag_grammar(
        tag, "tag", prepare=lambda schema: schema, is_special=lambda t: False
    )
    return lark(text)


@pytest.mark.parametrize("choice", ["yes", 'a "quoted" one', "caf\u00e9 \U0001f600", "a\nb\\c\t"])
def test_a_choice_is_one_of_the_texts_and_nothing_else(choice: str) -> None:
    grammar = lark(choice_grammar(["yes", 'a "quoted" one', "caf\u00e9 \U0001f600", "a\nb\\c\t"]))
    assert matches(grammar, choice)
    assert not matches(grammar, choice + "x")


def test_gbnf_of_llama_cpp_is_read() -> None:
    text = 'root ::= "SELECT " col (", " col)* # a comment\ncol ::= [a-c]+ | "*"'
    grammar = lark(any_grammar(text, "grammar"))
    assert matches(grammar, "SELECT ab, *")
    assert not matches(grammar, "SELECT d")


@pytest.mark.parametrize("text", ['start: "a" | "b"', '%llguidance {}\nstart: "a"', '?start: "a"'])
def test_lark_is_left_as_it_is(text: str) -> None:
    assert any_grammar(text, "grammar") == text


@pytest.mark.parametrize("text", ["nonsense", "root ::= missing", 'other ::= "a"'])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="neither Lark") as caught:
        any_grammar(text, "structured_outputs.grammar")
    assert caught.value.param == "structured_outputs.grammar"


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
                    {
                        "begin": one["begin"],
                        "content": {"type": "json_schema", "json_schema": one["schema"]},
                        "end": one["end"],
                    }
                    for one in TAG["structures"]
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
    text = structural_tag_grammar(tag, "tag", prepare=dict, is_special="<|tool|>".__eq__)
    assert "part_0: TEXT <|tool|> %json {}" in text


@pytest.mark.parametrize(
    ("tag", "words"),
    [
        ({}, "must have structures"),
        (5, "must have structures"),
        ({"structures": [], "triggers": []}, "at least one"),
        ({"structures": [{"begin": "a", "end": ""}], "triggers": ["b"]}, "none of the triggers"),
        ({"structures": [{"begin": "a", "end": ""}], "triggers": [""]}, "must not be empty"),
        ({"structures": [{"begin": 1, "end": ""}], "triggers": ["b"]}, "as strings"),
        ({"format": {"type": "any_text"}}, "'any_text' is not supported"),
    ],
)
def test_other_forms_of_tags_are_refused(tag: Any, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        tag_grammar(tag)
