"""Where the reasoning of an output is, however its marks are cut into tokens."""

from __future__ import annotations

import struct

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
