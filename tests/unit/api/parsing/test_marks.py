from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo.api.parsing.marks import PENDING, MarkSet

MARKS = MarkSet(["<a>", "<ab>", "</a>", "[", "<|x|>"])


def test_the_longest_mark_counts() -> None:
    marks = MarkSet(["<a", "<ab>"])
    assert marks.match("<ab>", 0, False) == "<ab>"
    assert marks.match("<ab", 0, False) is PENDING
    assert marks.match("<ab", 0, True) == "<a"
    assert marks.match("<ac", 0, False) == "<a"
    assert marks.match("b", 0, False) is None


def test_a_possible_beginning_is_found_but_no_mark_yet() -> None:
    assert MARKS.search("text <", 0, False) == (5, None)
    assert MARKS.search("text <", 0, True) == (6, None)
    assert MARKS.search("text <|y <|x|> ", 0, False) == (9, "<|x|>")


def test_no_marks_are_found_by_no_marks() -> None:
    assert MarkSet([]).search("<a>", 0, False) == (3, None)


@given(text=st.text(alphabet="<ab>/[|x", max_size=30))
def test_the_first_mark_is_where_a_plain_search_finds_it(text: str) -> None:
    place, mark = MARKS.search(text, 0, True)
    places = [text.find(one) for one in MARKS.marks if one in text]
    assert place == min(places, default=len(text))
    assert mark == max(
        (one for one in MARKS.marks if text.startswith(one, place)), key=len, default=None
    )
