"""The text in a call's arguments, whatever the cuts."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.api.text_input import TextInput


def read(cuts: list[str]) -> str:
    text = TextInput("input")
    return "".join(map(text.feed, cuts)) + text.finish()


def cut(text: str, places: list[int]) -> list[str]:
    ends = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(ends)]


@given(
    st.text(max_size=20),
    st.booleans(),
    st.sampled_from([(", ", ": "), (",", ":")]),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_any_text_comes_as_it_is(
    said: str, ascii_only: bool, separators: tuple[str, str], places: list[int]
) -> None:
    written = json.dumps({"input": said}, ensure_ascii=ascii_only, separators=separators)
    assert read(cut(written, places)) == said
    assert read([*written]) == said


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('{\n  "input" : "a"\n}', "a"),
        ('{"input": "a", "more": "b"}', "a"),
        ('{"input": "cut', "cut"),
        ('{"input": "cut\\', "cut"),
        ('{"input": "cut\\u00', "cut"),
        ('{"input": "\\q\\u00zz\\/"}', "\\q\\u00zz/"),
        ('{"input": "\\ud800"}', "\ufffd"),
        ('{"input": "\\ud83d\\u0041"}', "\ufffdA"),
        ('{"input": "\\uD83D\\uDE00\\udc00"}', "\U0001f600\ufffd"),
        ("{}", ""),
        ("{ }", ""),
        ("", ""),
        ('{"code": "x"}', '{"code": "x"}'),
        ('{"input": 5}', '{"input": 5}'),
        ('{"inp', '{"inp'),
        ("no JSON", "no JSON"),
    ],
)
def test_other_forms(written: str, said: str) -> None:
    assert read([written]) == said
    assert read([*written]) == said


def test_characters_come_as_soon_as_they_are_certain() -> None:
    text = TextInput("input")
    parts = ('{"inp', 'ut": "a', "b\\", "n", "\\ud83d", "\\ude", "00")
    assert [text.feed(part) for part in parts] == ["", "a", "b", "\n", "", "", "\U0001f600"]
