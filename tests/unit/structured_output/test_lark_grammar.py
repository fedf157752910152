"""Choices and GBNF as grammars, matched by the library."""

from __future__ import annotations

import time

import pytest

from octavo.errors import InvalidParameter
from octavo.messages.grammar import Grammar
from octavo.structured_output.lark_grammar import any_grammar, choice_grammar
from tests.fakes.grammar_match import matches


def lark(text: str) -> Grammar:
    return Grammar("lark", text)


@pytest.mark.parametrize("choice", ["yes", 'a "quoted" one', "caf\u00e9 \U0001f600", "a\nb\\c\t"])
def test_a_choice_is_one_of_the_texts_and_nothing_else(choice: str) -> None:
    grammar = lark(choice_grammar(["yes", 'a "quoted" one', "caf\u00e9 \U0001f600", "a\nb\\c\t"]))
    assert matches(grammar, choice)
    assert not matches(grammar, choice + "x")


@pytest.mark.parametrize("num", [1000, 1001, 15_000])
def test_there_may_be_thousands_of_choices(num: int) -> None:
    choices = [f"{'ab'[n % 2]}{n}" for n in range(num)]
    grammar = lark(choice_grammar(choices))
    assert all(matches(grammar, choice) for choice in (choices[0], choices[1], choices[-1]))
    assert not matches(grammar, "a1")
    assert not matches(grammar, choices[-1] + "x")


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


BOMB = "root ::= a a a a a a a a\n" + "\n".join(
    f"{chr(97 + i)} ::= {(chr(98 + i) + ' ') * 8}" for i in range(20)
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "start: A\nA: " + "B " * 40_000 + "\nB: " + "C " * 40_000 + '\nC: "x"',
            "the terminal 'A'",
        ),
        (BOMB + '\nu ::= "x"', "the terminal '[A-N]'"),
        ("root ::= " + "(" * 3000 + '"a"' + ")" * 3000, "nested too deeply"),
    ],
)
def test_grammars_that_would_fill_the_memory_are_refused_at_once(text: str, reason: str) -> None:
    begin_s = time.thread_time()
    with pytest.raises(InvalidParameter, match=reason):
        any_grammar(text, "grammar")
    assert time.thread_time() - begin_s < 1
