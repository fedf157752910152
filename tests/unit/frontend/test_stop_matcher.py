from __future__ import annotations

import itertools
import re
import time

from hypothesis import given
from hypothesis import strategies as st

from octavo.frontend.stop_matcher import StopMatch, StopMatcher


def first_match(text: str, stops: list[str]) -> StopMatch | None:
    """The definition: try every end in order, the longest stop string first."""
    for end in range(1, len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return StopMatch(stop, end - len(stop), end)
    return None


def num_held_back(text: str, stops: list[str]) -> int:
    """The definition: the longest end of the text that begins a stop string."""
    return max(
        (k for stop in stops for k in range(len(stop)) if text.endswith(stop[:k])), default=0
    )


def cut(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted({c % (len(text) + 1) for c in cuts}), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


@given(
    st.text("ab", max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4),
    st.lists(st.integers(0, 100), max_size=8),
)
def test_any_cut_of_the_text_gives_the_match_of_the_whole(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    matcher = StopMatcher(stops)
    seen = ""
    for piece in cut(text, cuts):
        match = matcher.feed(piece)
        seen += piece
        assert match == first_match(seen, stops)
        if match is not None:
            return
        assert matcher.num_held_back == num_held_back(seen, stops)


def test_a_match_that_does_not_count_is_passed_over() -> None:
    matcher = StopMatcher(["aa"])
    assert matcher.feed("aa", is_counted=False) is None
    assert matcher.num_held_back == 1
    assert matcher.feed("a") == StopMatch("aa", 1, 3)


def test_a_long_stop_string_and_a_repetitive_text_take_linear_time() -> None:
    stop = "a" * 100_000 + "b"
    matcher = StopMatcher([stop])
    for _ in range(300):
        assert matcher.feed("a" * 1000) is None
    assert matcher.num_held_back == 100_000
    match = matcher.feed("b")
    assert match is not None
    assert match.end - match.start == len(stop)


def test_no_stop_string_begins_in_released_text() -> None:
    stops = ["</s>", "\n\nUser:", "User"]
    text = "one < two \n\nUse it </s"
    matcher = StopMatcher(stops)
    assert matcher.feed(text) is None
    released = text[: len(text) - matcher.num_held_back]
    assert released == "one < two \n\nUse it "
    assert not any(re.search(re.escape(s), released) for s in stops)


def test_long_stop_strings_cost_nothing_until_the_text_comes_near() -> None:
    start_s = time.perf_counter()
    matchers = [StopMatcher(["a" * 60_000 + "b", "xy" * 30_000]) for _ in range(2000)]
    for matcher in matchers:
        assert matcher.feed("aaaxyx") is None
        assert matcher.num_held_back == 3
    assert time.perf_counter() - start_s < 2  # tables for all would take minutes
