"""Where the reasoning of an output is, however its marks are cut into tokens."""

from __future__ import annotations

import struct

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.messages.grammar import NO_TEXT, Vocabulary
from octavo.sampling_params import ReasoningMarks
from octavo.structured_output.backend import GrammarError
from octavo.structured_output.reasoning_gate import ReasoningGate
from octavo.structured_output.token_texts import TokenTexts

LETTERS = [bytes([byte]) for byte in range(128)]
WORDS = [
    *LETTERS,
    b"</think>",
    NO_TEXT + b"</think>",
    b">\n\n",
    b">{",
    NO_TEXT + b"<think>",
    b"</",
    b"think",
]
END, SPECIAL_END, END_SPACE, END_ANSWER, BEGIN = range(128, 133)
TOKENS = TokenTexts(
    Vocabulary(struct.pack(f"={len(WORDS)}I", *map(len, WORDS)), b"".join(WORDS), [0])
)
OPEN = ReasoningMarks(["<think>"], ["</think>", "<end>"], is_open=True)


def num_taken(token_ids: list[int], marks: ReasoningMarks = OPEN) -> int:
    """Tokens before the first one that is the grammar's."""
    gate = ReasoningGate(TOKENS, marks)
    for number, token_id in enumerate(token_ids):
        if not gate.takes(token_id):
            return number
    return len(token_ids)


@pytest.mark.parametrize(
    "mark",
    [
        [END],
        [SPECIAL_END],
        list(b"</think>"),
        [*b"</think", END_SPACE],
        [133, 134, ord(">")],
        list(b"<end>"),
    ],
)
@given(before=st.lists(st.sampled_from([*b"ab</", 133, 134]), max_size=20))
def test_the_mark_ends_it_however_it_is_cut(mark: list[int], before: list[int]) -> None:
    answer = list(b"{}")
    assert num_taken([*before, *mark, *answer]) == len(before) + len(mark)


def test_without_an_end_all_is_reasoning() -> None:
    tokens = list(b"</thin</thinkend><")
    assert num_taken(tokens) == len(tokens)


def test_an_end_in_the_midst_of_the_answers_first_token_is_an_error() -> None:
    with pytest.raises(GrammarError, match="one token"):
        num_taken([*b"</think", END_ANSWER])


def test_a_mark_that_begins_counts_only_at_the_first_token() -> None:
    closed = ReasoningMarks(["<think>"], ["</think>"], is_open=False)
    assert num_taken([BEGIN, *b"x", END, *b"{"], closed) == 3
    assert num_taken([*b"{", BEGIN], closed) == 0
    assert num_taken(list(b"<think>x</think>"), closed) == 0, "one token or none"


def allowed(gate: ReasoningGate) -> list[int]:
    """Tokens that may be drawn next where the grammar allows `{` alone."""
    mask = np.zeros(-(-len(WORDS) // 32), np.uint32)
    mask[ord("{") // 32] = 1 << ord("{") % 32
    gate.widen(mask)
    return [i for i in range(len(WORDS)) if mask[i // 32] >> i % 32 & 1]


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_a_budget_ends_the_reasoning_with_the_mark(budget: int) -> None:
    gate = ReasoningGate(TOKENS, msgspec.structs.replace(OPEN, budget=budget))
    for _ in range(budget):
        assert len(allowed(gate)) == len(WORDS) - 1  # all but the one that ends the output
        assert gate.takes(ord("a"))
    assert allowed(gate) == [SPECIAL_END]
    assert gate.takes(SPECIAL_END)
    assert allowed(gate) == [ord("{")]
    assert not gate.takes(ord("{"))


def test_a_mark_of_many_tokens_is_written_token_by_token() -> None:
    marks = ReasoningMarks(["<think>"], ["<end>"], is_open=True, budget=2)
    gate = ReasoningGate(TOKENS, marks)
    assert gate.takes(ord("<"))
    assert gate.takes(ord("e"))
    for token_id in b"<end>":
        assert allowed(gate) == [token_id]
        assert gate.takes(token_id)
    assert allowed(gate) == [ord("{")]


def test_who_stays_within_the_budget_is_left_alone() -> None:
    closed = ReasoningMarks(["<think>"], ["</think>"], is_open=False, budget=2)
    assert num_taken([BEGIN, *b"x", END, *b"{"], closed) == 3
    gate = ReasoningGate(TOKENS, closed)
    assert not gate.takes(ord("{"))
    assert allowed(gate) == [ord("{")]


def test_a_mark_that_no_token_can_write_is_an_error_of_the_request() -> None:
    gate = ReasoningGate(TOKENS, ReasoningMarks([], ["\u00e9"], is_open=True, budget=0))
    with pytest.raises(GrammarError, match="cannot be ended"):
        allowed(gate)


def test_one_token_may_end_the_reasoning_and_go_on_where_all_is_free() -> None:
    free = msgspec.structs.replace(OPEN, is_free=True)
    assert num_taken([*b"</think", END_ANSWER, *b"x"], free) == 8
