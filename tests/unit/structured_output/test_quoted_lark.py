"""Converted grammars accept the escaped text where the grammar accepts the text."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.messages.grammar import Grammar
from octavo.structured_output.quoted_lark import LarkError, quoted_lark, regex_as_lark
from octavo.structured_output.quoted_regex import spelled
from tests.fakes.grammar_match import matches


def converted(text: str) -> Grammar:
    start, rules = quoted_lark(text, "t1_")
    return Grammar("lark", "\n".join(["%llguidance {}", f"start: {start}", *rules]))


SQL = r"""
// a comment with "quotes" and /slashes/
start: "select"i SP column ("," column)* SP "from"i SP NAME where? "\n"
?column: NAME | QUOTED
where: SP "where"i SP NAME "=" (NUMBER | QUOTED) # more
%import common.NUMBER
NAME: /[a-z_]+/
QUOTED: "\"" /[^"\n]*/ "\""
SP: " "~1..2
"""
YES = [
    "select a from b\n",
    'SELECT "a b",c from  t where x="1\\"\n',
    "select a from b where x=1.5\n",
]
NO = ["select a from b", 'select "a\n" from b\n', "select a   from b\n"]


@pytest.mark.parametrize("text", [*YES, *NO])
def test_a_grammar_of_several_rules(text: str) -> None:
    assert matches(Grammar("lark", SQL), text) is (text in YES)
    assert matches(converted(SQL), spelled(text)) is (text in YES)


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ('start: "a\\n"i', ["A\n"], ["a"]),
        ('start: "0".."9"+ "\\u0000"', ["12\0"], ["a\0"]),
        ('start: " ".."~"', ['"', "\\", "a"], ["\n"]),
        ("start: _X\n_X: /./s", ["\n", "x"], [""]),
        ("start: C\nC: A & B\nA: /[^x]+/\nB: /[^y\\n]+/", ['"z'], ["z\n", "x"]),
        ("%import common.WS_INLINE -> GAP\nstart: GAP", [" \t"], ["\n"]),
        ("start: ESCAPED_STRING\n%import common.ESCAPED_STRING", ['"a\\"b"'], ['"a']),
        ("start: X\nX: /a\\/b/", ["a/b"], ["a"]),
        (regex_as_lark("^a/b$"), ["a/b"], ["a"]),
        (regex_as_lark(r"a\/\$"), ["a/$"], ["a/"]),
        (regex_as_lark("a\nb|[/]"), ["a\nb", "/"], ["ab"]),
        (regex_as_lark(""), [""], ["a"]),
    ],
)
def test_pieces_of_the_notation(text: str, yes: list[str], no: list[str]) -> None:
    plain, quoted = Grammar("lark", "%llguidance {}\n" + text), converted(text)
    for said in [*yes, *no]:
        assert matches(quoted, spelled(said)) is (said in yes), said
        assert matches(plain, said) is (said in yes), said


def test_escapes_side_by_side_belong_into_one_terminal() -> None:
    apart, together = r'start: WS "\""' + "\nWS: /[ \\n]+/", r'start: /[ \n]+"/'
    assert not matches(converted(apart), spelled(' "')), "the library takes the backslash for WS"
    assert matches(converted(together), spelled(' "'))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("start: A\n%ignore /\\s/\nA: /a/", "%ignore"),
        ('start: %json {"type": "object"}', "%json"),
        ("start: <|tool|>", "<|tool|>"),
        ("start: @other", "@other"),
        ("start[lazy]: /a/", "is not supported"),
        ("start: ~/a/", "~"),
        ("x: /a/", "named start"),
        ("start: common.INT", ".INT"),
        ("%import common.NOTHING\nstart: NOTHING", "there are"),
        ("start: /[[a]b]/", "classes in classes"),
        ("start: /a/x", "flags"),
        ('start: "ab".."c"', "no range"),
        ('start: "\\q"', "escapes"),
        ('start: "a', "is not supported"),
    ],
)
def test_what_cannot_stand_in_another_grammar_is_refused(text: str, words: str) -> None:
    with pytest.raises(LarkError) as caught:
        quoted_lark(text, "t1_")
    assert words in str(caught.value)


@given(st.text(st.sampled_from('startAb:|"/\\[]()%~.\n #ijson<>@0'), max_size=40))
def test_no_text_breaks_the_conversion(text: str) -> None:
    with contextlib.suppress(LarkError):
        quoted_lark(f"start: {text}", "t1_")


def test_a_terminal_that_becomes_too_large_is_refused() -> None:
    lines = ["start: A9", "A0: /" + "x" * 999 + "/"]
    lines += [f"A{n}: A{n - 1} A{n - 1} A{n - 1} A{n - 1} A{n - 1}" for n in range(1, 10)]
    with pytest.raises(LarkError, match="terminal"):
        quoted_lark("\n".join(lines), "t1_")
