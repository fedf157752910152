from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.api.parsing.values import JSON, PYTHON, Notation, ValueScanner

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS.filter(lambda value: value not in (float("inf"), float("-inf"))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
NEAR_JSON = st.text(alphabet='{}[]",:\\ntrue1.e-+ \x0a\u00e9', max_size=24)


def scanned(
    text: str, notation: Notation = JSON, cuts: list[int] | None = None
) -> tuple[str, int, ValueScanner]:
    """What is written, up to where was read, and the scanner, for a text in some cuts."""
    scanner, out, place = ValueScanner(notation), list[str](), 0
    for end in [*(cuts or []), len(text)]:
        part = text[place:end]
        used = scanner.scan(part, 0, out)
        place += used
        if used < len(part):
            return "".join(out), place, scanner
    if not (scanner.is_done or scanner.has_failed):
        scanner.finish(out)
    return "".join(out), place, scanner


@given(value=VALUES, tail=st.sampled_from(["", " ", "}", ",", "x"]), indent=st.none() | st.just(2))
def test_json_is_written_as_it_is_and_what_follows_is_left(
    value: Any, tail: str, indent: int | None
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if not isinstance(value, (str, list, dict)):
        tail = tail.replace("x", " ")  # a letter would belong to a constant
    written, place, scanner = scanned(text + tail)
    assert scanner.is_done
    assert written == text
    assert place == len(text)


@given(text=NEAR_JSON)
def test_what_is_json_is_what_json_says(text: str) -> None:
    written, place, scanner = scanned(text)
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text.lstrip(" \n"))
        end += len(text) - len(text.lstrip(" \n"))
    except ValueError:
        assert not scanner.is_done
        return
    if scanner.is_done:
        assert json.loads(written) == value
        assert place == end
    else:  # a number or a constant that goes on in what cannot be: json takes its beginning
        assert text[end : end + 1] in tuple("true1.e-+n")


@given(text=NEAR_JSON, data=st.data())
def test_cuts_change_nothing(text: str, data: st.DataObject) -> None:
    notation = data.draw(st.sampled_from([JSON, PYTHON]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    whole, cut = scanned(text, notation), scanned(text, notation, cuts)
    assert cut[:2] == whole[:2]
    assert (cut[2].is_done, cut[2].has_failed) == (whole[2].is_done, whole[2].has_failed)


@given(value=VALUES)
def test_what_python_writes_becomes_the_same_value(value: Any) -> None:
    text = repr(value)
    written, place, scanner = scanned(text, PYTHON)
    assert scanner.is_done, text
    assert place == len(text)
    assert json.loads(written) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(1, .5, +3, 1., -2e3)", [1, 0.5, 3, 1.0, -2000.0]),
        ("{'a': [True, None,], \"b\": 'it\\'s \"x\"',}", {"a": [True, None], "b": 'it\'s "x"'}),
        (r"'\x41\u00e9\U0001F600\q'", "A\u00e9\U0001f600\\q"),
        ("[true, null]", [True, None]),
        ("[]", []),
        ("()", []),
    ],
)
def test_python_that_json_has_not(text: str, value: Any) -> None:
    written, _, scanner = scanned(text, PYTHON)
    assert scanner.is_done
    assert json.loads(written) == value


@pytest.mark.parametrize("text", ["[1,]", "{a: 1}", "tru ", "01", "1.2.3", "'a'", '"\\x"', "[)"])
def test_what_is_no_json_fails(text: str) -> None:
    assert not scanned(text)[2].is_done


def test_line_ends_in_texts_are_written_as_escapes() -> None:
    assert scanned('"a\nb\t"')[0] == '"a\\nb\\t"'


@pytest.mark.parametrize("text", ["[" * 300_000, '{"a":' * 60_000, '"' + "{" * 1_000_000])
def test_nesting_has_no_limit(text: str) -> None:
    written, place, scanner = scanned(text)
    assert written == text
    assert place == len(text)
    assert not scanner.has_failed
