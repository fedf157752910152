"""Numbers of JSON stay short, where the grammar leaves a choice."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.messages.grammar import Vocabulary
from octavo.structured_output.number_guard import MAX_DIGITS, DigitTokens, NumberGuard
from octavo.structured_output.token_texts import TokenTexts

WORDS = [
    b"1",
    b"12",
    b"123",
    b"4.5",
    b",",
    b'"',
    b"\\",
    b"e",
    b"-",
    b"x",
    b"",
    b"77777777777",
    b"E+9",
]
TOKENS = DigitTokens(
    TokenTexts(Vocabulary(struct.pack(f"={len(WORDS)}I", *map(len, WORDS)), b"".join(WORDS), [10]))
)
ALL = set(range(len(WORDS)))


def ids(text: str) -> list[int]:
    return [WORDS.index(character.encode()) for character in text]


def left(history: list[int], allowed: set[int] = ALL) -> set[bytes]:
    """Which of the `allowed` tokens are left after some."""
    guard = NumberGuard(TOKENS)
    for token_id in history:
        guard.accept(token_id)
    bits = np.zeros(32, np.uint8)
    bits[list(allowed)] = 1
    mask = np.packbits(bits, bitorder="little").view(np.uint32)
    guard.narrow(mask)
    kept = np.unpackbits(mask.view(np.uint8), bitorder="little").nonzero()[0].tolist()
    return {WORDS[token_id] for token_id in kept}


def test_tokens_know_their_bytes() -> None:
    assert [TOKENS.bytes_of(i) for i in range(len(WORDS))] == WORDS


def test_a_short_number_goes_on() -> None:
    assert left(ids("1" * 10)) == set(WORDS)


def test_no_token_goes_beyond_20_digits() -> None:
    assert left(ids("1" * 18)) == set(WORDS) - {b"123", b"77777777777"}
    assert left(ids("1" * 20)) == {b",", b'"', b"\\", b"e", b"-", b"x", b"", b"E+9"}


def test_the_part_after_the_point_counts_anew_and_an_exponent_has_two_digits() -> None:
    assert b"1" in left([*ids("1" * 20), WORDS.index(b"4.5")])
    assert b"1" in left(ids("1e1"))
    assert b"12" not in left(ids("1e1"))
    assert b"1" not in left(ids("1e-11"))
    assert b"1" in left(ids("1e-11,"))
    assert b"12" not in left([*ids("1"), WORDS.index(b"E+9")])


def test_digits_in_a_string_are_text() -> None:
    assert left([*ids('"'), *ids("1" * 30)]) == set(WORDS)
    assert left([*ids('"\\"'), *ids("1" * 30)]) == set(WORDS)
    assert b"1" not in left([*ids('"\\""'), *ids("1" * 20)])


def test_a_long_number_that_the_grammar_wants_is_written() -> None:
    digits = {WORDS.index(b"1"), WORDS.index(b"12")}
    assert left(ids("1" * 25), digits) == {b"1", b"12"}


@given(st.lists(st.sampled_from(sorted(ALL)), max_size=60))
def test_something_is_always_left(history: list[int]) -> None:
    for token_id in ALL:
        assert left(history, {token_id}) == {WORDS[token_id]}


@pytest.mark.parametrize("token", [b"1", b"12", b"123"])
def test_a_run_of_any_token_ends(token: bytes) -> None:
    history: list[int] = []
    while token in left(history):
        history.append(WORDS.index(token))
        assert len(history) <= MAX_DIGITS
    assert len(history) * len(token) in range(MAX_DIGITS - 2, MAX_DIGITS + 1)
