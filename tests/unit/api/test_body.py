from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.api.body import MAX_LISTED_ERRORS, parse_request
from octavo.errors import InvalidParameter


class Request(msgspec.Struct, kw_only=True):
    needed: str
    number: int = 1
    share: float | None = None
    names: list[str] | None = None
    bias: dict[int, float] | None = None


def parse(body: bytes) -> Request:
    return parse_request(body, Request).request


def test_null_is_absent() -> None:
    assert parse(b'{"needed": "x", "number": null, "share": null}') == Request(needed="x")


def test_a_null_that_is_needed_is_missing() -> None:
    with pytest.raises(InvalidParameter, match="needed: Field required"):
        parse(b'{"needed": null}')


def test_unknown_fields_are_reported_in_order_known_ones_not() -> None:
    parsed = parse_request(
        b'{"b": 1, "needed": "x", "a": null, "user": 1}', Request, also_known=frozenset({"user"})
    )
    assert parsed.unknown_fields == ["b", "a"]


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b'{"needed": 1}', "needed", "Expected `str`, got `int` (got 1)"),
        (b'{"needed": "x", "names": ["a", 1]}', "names[1]", "Expected `str`, got `int`"),
        (b'{"needed": "x", "bias": {"a": 1}}', "bias", "as a key"),
        (b'{"needed": "x", "number": 1.5}', "number", "(got 1.5)"),
        (b'{"needed": "x", "share": "0.5"}', "share", "(got '0.5')"),
        (b"[1]", "body", "JSON object"),
        (b'{"needed": NaN}', "body", "NaN and Infinity are not JSON"),
    ],
)
def test_mistakes_name_the_place_and_the_reason(body: bytes, param: str, words: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        parse(body)
    assert caught.value.param == param
    assert words in caught.value.message


def test_integral_floats_become_integers_only_where_integers_are_wanted() -> None:
    found = parse(b'{"needed": "x", "number": 5.0, "share": 2.0, "bias": {"3": 1}}')
    assert found == Request(needed="x", number=5, share=2.0, bias={3: 1.0})
    assert type(found.number) is int


def test_long_values_are_cut() -> None:
    with pytest.raises(InvalidParameter) as caught:
        parse(b'{"needed": "x", "number": "' + b"y" * 10000 + b'"}')
    assert len(caught.value.message) < 200


def test_only_the_first_mistakes_are_listed() -> None:
    many = msgspec.defstruct("Many", [(f"f{i}", int) for i in range(30)])
    with pytest.raises(InvalidParameter) as caught:
        parse_request(b"{}", many)
    assert caught.value.message.startswith("30 validation errors: ")
    assert caught.value.message.count("Field required") == MAX_LISTED_ERRORS


@given(body=st.binary(max_size=50))
def test_any_bytes_give_a_request_or_a_sentence(body: bytes) -> None:
    try:
        found = str(parse(body))
    except InvalidParameter as error:
        found = error.message and error.param
    assert found


@given(
    fields=st.dictionaries(
        st.sampled_from(["needed", "number", "share", "names", "bias"]),
        st.none() | st.text(max_size=3) | st.integers() | st.lists(st.text(max_size=2), max_size=2),
    )
)
def test_both_ways_of_converting_agree(fields: dict[str, Any]) -> None:
    given_fields = {k: v for k, v in fields.items() if v is not None}
    try:
        expected: Any = msgspec.convert(given_fields, Request, str_keys=True)
    except msgspec.ValidationError:
        expected = None
    try:
        found: Any = parse(msgspec.json.encode(fields))
    except InvalidParameter:
        found = None
    assert found == expected
