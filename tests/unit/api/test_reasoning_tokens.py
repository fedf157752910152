"""Tokens of reasoning are counted the same, however the output is cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.api.reasoning_tokens import ReasoningTokens
from octavo.sampling_params import ReasoningMarks

WORDS = [*(bytes([byte]) for byte in range(128)), b"<think>", b"</think>", b"<b>", b"</b>"]
BEGIN, END, SPECIAL_BEGIN, SPECIAL_END = range(128, 132)


class Tokens:
    special_ids = frozenset({SPECIAL_BEGIN, SPECIAL_END})

    def token_to_id(self, token: str, /) -> int | None:
        data = token.encode()
        return WORDS.index(data) if data in WORDS else None

    def id_to_token(self, token_id: int, /) -> str | None:
        return WORDS[token_id].decode()

    def token_bytes(self, token_id: int, /) -> bytes:
        assert token_id not in self.special_ids
        return WORDS[token_id]


def count(token_ids: list[int], begin: str, end: str, *, is_open: bool) -> int:
    counter = ReasoningTokens(Tokens(), ReasoningMarks([begin], [end], is_open))
    counter.see(token_ids)
    return counter.num_tokens


@pytest.mark.parametrize(
    ("token_ids", "is_open", "expected"),
    [
        ([*b"abc", END, *b"x"], True, 3),
        ([*b"abc"], True, 3),
        ([END, *b"x"], True, 0),
        ([BEGIN, *b"ab", END, *b"x"], False, 2),
        ([*b"x", BEGIN, *b"ab", END, *b"x", BEGIN, *b"c"], False, 3),
        ([*b"abc"], False, 0),
        ([], True, 0),
    ],
)
def test_tokens_between_the_marks(token_ids: list[int], is_open: bool, expected: int) -> None:
    assert count(token_ids, "<think>", "</think>", is_open=is_open) == expected


def test_marks_may_be_special_tokens() -> None:
    assert count([SPECIAL_BEGIN, *b"ab", SPECIAL_END, *b"x"], "<b>", "</b>", is_open=False) == 2


def test_of_a_mark_of_several_tokens_all_but_the_last_count() -> None:
    assert count([*b"ab</end>", *b"x"], "<begin>", "</end>", is_open=True) == 2 + len("</end")


@given(
    token_ids=st.lists(st.sampled_from([*b"a</end>", BEGIN, END, SPECIAL_END]), max_size=30),
    end=st.sampled_from(["</think>", "</end>", "</b>"]),
    is_open=st.booleans(),
    cuts=st.sets(st.integers(0, 30)),
)
def test_the_count_does_not_depend_on_the_cuts(
    token_ids: list[int], end: str, is_open: bool, cuts: set[int]
) -> None:
    marks = ReasoningMarks(["<think>"], [end], is_open)
    counter = ReasoningTokens(Tokens(), marks)
    places = [0, *sorted(cut for cut in cuts if cut < len(token_ids)), len(token_ids)]
    for start, stop in itertools.pairwise(places):
        counter.see(token_ids[start:stop])
    assert counter.num_tokens == count(token_ids, "<think>", end, is_open=is_open)
