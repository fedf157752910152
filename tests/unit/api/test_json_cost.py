"""What is refused before it is parsed, and what is not."""

from __future__ import annotations

import timeit

import msgspec
import pytest

from octavo.api.json_cost import MAX_KEYS, MAX_VALUES, SLOW_NUMBERS, check_json_cost
from octavo.errors import BodyTooLarge


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"1," * MAX_VALUES, "values"),
        (b'"k":1 ' * (MAX_KEYS + 1), "keys"),
        (b"1e308," * 10_001, "very large"),
        (b"-17.5E+000299," * 10_001, "very large"),
        (b"7" * 1000 + b"," + (b"7" * 1000 + b",") * 1_000, "very large"),
    ],
)
def test_what_costs_too_much_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(BodyTooLarge, match=words):
        check_json_cost(text)


@pytest.mark.parametrize(
    "text",
    [
        b"1," * (MAX_VALUES - 1),
        b'"k":1 ' * MAX_KEYS,
        b"1e308," * 10_000,
        b"1e279," * 100_000,
        b"1e-308," * 100_000,
        b"7" * 999 + b"," * 2000 + (b"7" * 999 + b",") * 1_001,
        b"deadbeefe310," * 100_000,
    ],
)
def test_what_is_fast_is_not(text: bytes) -> None:
    check_json_cost(text)


def test_the_numbers_that_are_limited_are_those_that_are_slow() -> None:
    def cost_s(number: bytes) -> float:
        text = b"[" + b",".join([number] * 500) + b"]"
        return min(timeit.repeat(lambda: msgspec.json.decode(text), number=1, repeat=5))

    usual = cost_s(b"1.2345678901234567e279")
    for number in (b"1e290", b"1e308", b"9" * 4000):
        assert any(pattern.search(number) for pattern, _ in SLOW_NUMBERS)
        assert cost_s(number) > 5 * usual
