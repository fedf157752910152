from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.core.cbor import encode, encode_token_ids


@pytest.mark.parametrize(
    ("item", "encoded"),
    [  # RFC 8949, appendix A
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (100, "1864"),
        (1000, "1903e8"),
        (1000000, "1a000f4240"),
        (1000000000000, "1b000000e8d4a51000"),
        (18446744073709551615, "1bffffffffffffffff"),
        (None, "f6"),
        (b"", "40"),
        (b"\x01\x02\x03\x04", "4401020304"),
        ("", "60"),
        ("IETF", "6449455446"),
        ("\u6c34", "63e6b0b4"),
        ([], "80"),
        ((1, (2, 3), [4, 5]), "8301820203820405"),
        (list(range(1, 26)), "98190102030405060708090a0b0c0d0e0f101112131415161718181819"),
    ],
)
def test_items_are_encoded_as_the_standard_shows(item: object, encoded: str) -> None:
    assert encode(item).hex() == encoded  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 2**32 - 1), max_size=300))
def test_token_ids_are_encoded_like_any_list(token_ids: list[int]) -> None:
    assert encode_token_ids(token_ids) == encode(token_ids)


@pytest.mark.parametrize("number", [-1, 2**64])
def test_numbers_that_do_not_fit_are_our_mistake(number: int) -> None:
    with pytest.raises(AssertionError, match="cannot be encoded"):
        encode(number)
