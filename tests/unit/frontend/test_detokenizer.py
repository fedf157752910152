from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.frontend.detokenizer import Detokenizer
from tests.fakes.byte_tokenizer import EOS, VOCAB_SIZE, ByteTokenizer

TOKENIZER = ByteTokenizer()


def detokenizer(
    stops: list[str] | None = None,
    *,
    include: bool = False,
    min_tokens: int = 0,
    skip_special_tokens: bool = True,
) -> Detokenizer:
    return Detokenizer(
        TOKENIZER.decode_stream([], skip_special_tokens),
        stops or [],
        include_stop_str=include,
        min_tokens=min_tokens,
    )


def tokens(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


def stream(detok: Detokenizer, updates: list[list[int]]) -> tuple[list[str], int]:
    """Feeds updates as the output processor does; the deltas and how many tokens counted."""
    deltas, num_tokens = [], 0
    for update in updates:
        num_tokens += detok.feed(update)
        if detok.stop_string is not None:
            break
        deltas.append(detok.take(is_finished=False))
    deltas.append(detok.take(is_finished=True))
    return deltas, num_tokens


def cut(ids: list[int], cuts: list[int]) -> list[list[int]]:
    edges = [0, *sorted({c % (len(ids) + 1) for c in cuts}), len(ids)]
    return [ids[a:b] for a, b in itertools.pairwise(edges)]


TOKEN_IDS = st.lists(
    st.one_of(
        st.sampled_from([97, 98, 99, 0xE2, 0x82, 0xAC, 0xC3, 0xA9]),
        st.integers(0, VOCAB_SIZE - 1),
    ),
    max_size=24,
)
STOPS = st.lists(st.text("abc€é", min_size=1, max_size=4), max_size=3)


@given(TOKEN_IDS, STOPS, st.lists(st.integers(0, 99), max_size=8), st.booleans(), st.integers(0, 6))
def test_any_cut_of_the_tokens_gives_the_text_of_the_whole(
    ids: list[int], stops: list[str], cuts: list[int], include: bool, min_tokens: int
) -> None:
    whole = detokenizer(stops, include=include, min_tokens=min_tokens)
    num_tokens = whole.feed(ids)
    cut_up = detokenizer(stops, include=include, min_tokens=min_tokens)
    deltas, num_streamed = stream(cut_up, cut(ids, cuts))
    assert "".join(deltas) == whole.text
    assert cut_up.stop_string == whole.stop_string
    assert num_streamed == num_tokens


@given(TOKEN_IDS, STOPS)
def test_no_delta_shows_any_of_a_stop_string(ids: list[int], stops: list[str]) -> None:
    detok = detokenizer(stops)
    deltas, _ = stream(detok, [[i] for i in ids])
    text = "".join(deltas)
    assert not any(stop in text for stop in stops)
    if detok.stop_string is None:
        assert text == detokenizer_text(ids)
    else:
        assert detokenizer_text(ids).startswith(text + detok.stop_string)


def detokenizer_text(ids: list[int]) -> str:
    detok = detokenizer()
    detok.feed(ids)
    return detok.text


def test_a_stop_string_inside_a_token_ends_the_text_before_it() -> None:
    detok = detokenizer(["E"])
    assert detok.feed([*tokens("ABC"), *tokens("DEF"), *tokens("G")]) == 4  # A B C DEF
    assert detok.text == "ABCD"
    assert detok.stop_string == "E"


def test_a_stop_string_over_several_tokens_is_never_shown_in_part() -> None:
    detok = detokenizer(["DEFG"])
    deltas, _ = stream(detok, [[i] for i in tokens("xxDEFGyy")])
    assert [d for d in deltas if d] == ["x", "x"]


def test_an_included_stop_string_comes_once_and_in_one_piece() -> None:
    detok = detokenizer(["STOP"], include=True)
    deltas, _ = stream(detok, [[i] for i in tokens("xSTOPy")])
    assert [d for d in deltas if d] == ["x", "STOP"]


def test_what_only_looked_like_a_stop_string_is_released() -> None:
    detok = detokenizer(["STOP"])
    deltas, _ = stream(detok, [[i] for i in tokens("aSTep")])
    assert deltas == ["a", "", "", "STe", "p", ""]


def test_held_back_text_comes_at_the_end() -> None:
    detok = detokenizer(["STOP"])
    deltas, _ = stream(detok, [[i] for i in tokens("aSTO")])
    assert "".join(deltas) == "aSTO"
    assert deltas[-1] == "STO"


def test_a_stop_string_does_not_count_within_min_tokens() -> None:
    detok = detokenizer(["a"], min_tokens=2)
    assert detok.feed(tokens("axay")) == 3
    assert detok.text == "ax"


def test_the_first_stop_string_in_the_text_wins_whatever_their_order() -> None:
    for stops in (["c", "b"], ["b", "c"]):
        detok = detokenizer(stops)
        detok.feed(tokens("abc"))
        assert (detok.text, detok.stop_string) == ("a", "b")


@pytest.mark.parametrize(
    ("include", "skip_special_tokens", "text"),
    [(False, True, "hi"), (False, False, "hi"), (True, True, "hi"), (True, False, "hi<eos>")],
)
def test_the_stop_token_is_text_only_if_asked_for(
    include: bool, skip_special_tokens: bool, text: str
) -> None:
    detok = detokenizer(include=include, skip_special_tokens=skip_special_tokens)
    assert detok.feed([*tokens("hi"), EOS], last_is_stop_token=True) == 3
    assert detok.take(is_finished=True) == text


def test_text_comes_in_whole_characters() -> None:
    detok = detokenizer()
    deltas, _ = stream(detok, [[i] for i in "a€".encode()])
    assert deltas == ["a", "", "", "€", ""]


def test_a_character_cut_at_the_end_is_dropped_in_a_stream_and_in_a_whole() -> None:
    ids = list("a€".encode()[:3])
    whole = detokenizer()
    whole.feed(ids)
    deltas, _ = stream(detokenizer(), [[i] for i in ids])
    assert whole.take(is_finished=True) == "".join(deltas) == "a"


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("stop", ["9.8", "</think>", "ink>answer", "think>"])
def test_c62_a_stop_string_counts_in_reasoning_text_as_anywhere(stop: str, include: bool) -> None:
    """The output ends there; nothing of the stop string or of what follows is left."""
    text = "<think>Earth: 9.8 m/s2.</think>answer"
    detok = detokenizer([stop], include=include)
    deltas, _ = stream(detok, [[i] for i in tokens(text)])
    before = text[: text.index(stop)]
    assert "".join(deltas) == (before + stop if include else before)
    assert detok.stop_string == stop
