"""A converted expression matches the escaped text where the expression matches the text."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.messages.grammar import Grammar
from octavo.structured_output.quoted_regex import RegexError, quoted_regex, spelled
from tests.fakes.grammar_match import matches

PATTERNS = [
    'say "a"',
    ".",
    "a.b",
    r"(?s:.)x.",
    r"(?s).(?-s:.)",
    "[^a]",
    r'["\n]',
    r"[\x00-\x1f]",
    r"\s",
    r"\S",
    r"[\s]x",
    r"[^\s]",
    r"\d\D",
    r"\W",
    r"\w+",
    r"(?i:x\ny)",
    r"\u000a",
    r"\x{22}|\x5c",
    r"[\u{22}b]",
    r'[\p{L}"]',
    r"\p{L}",
    r"\\n",
    r"\t{2}",
    r"a\"?",
    r"[]a]",
    r"[!-~]",
    r"[\]\\]",
    r"(a|\n)*",
]
CHARACTERS = [
    '"',
    "\\",
    "\n",
    "\t",
    "\r",
    "\f",
    "\v",
    "\x00",
    "\x1c",
    "\x1f",
    *"aAbnxXyY1 ]!~\x7f\u00e9",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_character_and_each_pair(pattern: str) -> None:
    plain, quoted = Grammar("regex", pattern), Grammar("regex", quoted_regex(pattern))
    pairs = [a + b for a in '"\\\n\x1cax1' for b in '"\\\n\x1cax1']
    for text in [*CHARACTERS, *pairs, "x\ny", "X\nY", 'say "a"', "a\nb", '"\n', "nn"]:
        assert matches(quoted, spelled(text)) is matches(plain, text), text


def test_escapes_have_one_spelling_and_one_case() -> None:
    for pattern, text in [
        (r"\n", r"\u000a"),
        (r"(?i)\n", r"\N"),
        ("(?i:/)", r"\/"),
        ("a", r"\u0061"),
    ]:
        assert not matches(Grammar("regex", quoted_regex(pattern)), text)


@given(st.text(max_size=20))
def test_any_text_is_matched_by_dots(text: str) -> None:
    grammar = Grammar("regex", quoted_regex(".*", dot_is_all=True))
    assert matches(grammar, spelled(text))
    assert json.loads(f'"{spelled(text)}"') == text


@given(st.text(st.sampled_from(r'ab\[]^-.*+?(){}|"0x1udswpLPi:&n'), max_size=12))
def test_no_expression_breaks_the_conversion(pattern: str) -> None:
    with contextlib.suppress(RegexError):
        quoted_regex(pattern)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("[[a]b]", "classes in classes"),
        ("[a&&b]", "classes in classes"),
        ("[a", "does not end"),
        (r"\P{L}", "not supported"),
        (r"\p{P}", "not supported"),
        (r"\p{Cyrillic}", "not supported"),
        ("(?x: a )", "flags"),
        ("[z-a]", "cannot be read"),
        ("a\\", "at the end"),
        (r"\x{110000}", "no character"),
        (r"[\u{ffffff}]", "no character"),
    ],
)
def test_what_is_not_known_is_refused(pattern: str, words: str) -> None:
    with pytest.raises(RegexError, match=words):
        quoted_regex(pattern)
