"""The size of terminals, from the text of a grammar."""

from __future__ import annotations

import itertools
import time

import pytest

from octavo.structured_output.terminal_size import MAX_TERMINAL_SIZE, largest_terminal

TOO_MUCH = MAX_TERMINAL_SIZE + 1


def test_a_grammar_without_terminals_has_none() -> None:
    assert largest_terminal('start: a a a\na: "x" /y/') == ("", 0)


def test_a_terminal_counts_what_it_consists_of() -> None:
    text = 'start: WORD\nWORD: LETTER LETTER "ab" // WORD WORD\nLETTER: /[a-z]/ | "-"  # LETTER\n'
    assert largest_terminal(text) == ("WORD", 4 + 2 * (7 + 3))


@pytest.mark.parametrize(
    "text",
    [
        'A: "\\"B: B B B" "B B"',
        "A: /B:B\\/B B B B/  ",
        "A.5: DIGITS DIGITS DIGITS  ",
        "?A[capture]: B4 B4 /a/ /.../",
    ],
)
def test_names_within_texts_are_no_terminals(text: str) -> None:
    name, size = largest_terminal("start: A\n" + text)
    assert name == "A"
    assert size <= len(text)


@pytest.mark.parametrize(("width", "depth"), [(2, 22), (8, 20), (1200, 2), (40_000, 3)])
def test_terminals_of_terminals_are_multiplied(width: int, depth: int) -> None:
    names = [f"R{level}" for level in range(depth + 1)]
    rules = [f"{a}: {' '.join([b] * width)}" for a, b in itertools.pairwise(names)]
    text = "\n".join(["start: R0", *rules, f'{names[-1]}: "x"'])
    assert largest_terminal(text)[1] == TOO_MUCH


def test_terminals_in_circles_have_an_end() -> None:
    assert largest_terminal("A: B B\nB: A /x/ C\nC: C")[1] < 20


def test_a_long_chain_is_measured_in_linear_time() -> None:
    chain = "\n".join(f"R{i}: R{i + 1} /x/" for i in range(20_000))
    begin_s = time.thread_time()
    assert largest_terminal(f"start: R0\n{chain}")[1] == 20_000 * 3 + 1
    assert time.thread_time() - begin_s < 1


def test_a_rule_is_not_written_out() -> None:
    text = "start: a\n" + "a: " + "b " * 10_000 + "\nb: " + "C " * 10_000 + '\nC: "x"'
    assert largest_terminal(text) == ("C", 3)
