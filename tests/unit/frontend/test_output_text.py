"""From tokens to what a client reads, over real vocabularies: any tokens, cut into any updates,
give the text of all of them up to the first stop string; each token keeps its own bytes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from octavo.api.openai.logprobs import TextOffsets, TokenText
from octavo.frontend.detokenizer import Detokenizer
from octavo.tokenizer.tokenizer import Tokenizer, load_tokenizer
from octavo.weights.hub import HubSettings, locate
from tests.fakes.gguf_writer import write_gguf
from tests.fakes.vocabularies import sentencepiece_metadata

UNFINISHED = 3  # bytes of the longest unfinished character


@cache
def smollm() -> Tokenizer:
    """The default model's: byte-level, 49,152 tokens."""
    return load_tokenizer(locate(None, HubSettings(cache_dir="")))


@cache
def sentencepiece() -> Tokenizer:
    """Pieces, and a token for each byte that no piece has."""
    with TemporaryDirectory() as folder:
        return load_tokenizer(write_gguf(Path(folder, "m.gguf"), sentencepiece_metadata()))


TOKENIZERS = {"byte-level": smollm, "byte fallback": sentencepiece}
KIND = st.sampled_from(sorted(TOKENIZERS))
#: halves of characters, which random tokens seldom make whole
SPLIT = ["\U0001f600", "\u20ac", "\u6f22", "\u00e9\U0001f1e9\U0001f1ea"]


def all_bytes(tokenizer: Tokenizer, ids: Sequence[int]) -> bytes:
    return b"".join(tokenizer.token_bytes(i) for i in ids if i not in tokenizer.special_ids)


def whole_characters(data: bytes) -> str:
    """What is not UTF-8 is U+FFFD, but an unfinished character at the end is nothing."""
    for cut in range(min(UNFINISHED, len(data)) + 1):
        tail = data[len(data) - cut :]
        if cut and _is_unfinished(tail):
            return data[: len(data) - cut].decode(errors="replace")
    return data.decode(errors="replace")


def _is_unfinished(tail: bytes) -> bool:
    """More bytes could make one character of it."""
    lengths = {2: range(0xC2, 0xE0), 3: range(0xE0, 0xF0), 4: range(0xF0, 0xF5)}
    length = next((n for n, firsts in lengths.items() if tail[0] in firsts), 0)
    if length <= len(tail):
        return False
    for second in (0x80, 0x90, 0x9F, 0xBF):
        filled = (tail + bytes([second]) + b"\x80\x80\x80")[:length]
        try:
            filled.decode()
        except UnicodeDecodeError:
            continue
        return True
    return False


@st.composite
def tokens(draw: st.DrawFn, tokenizer: Tokenizer) -> list[int]:
    """Random tokens, among them pieces of characters, whole or cut short."""
    ids: list[int] = []
    for _ in range(draw(st.integers(0, 8))):
        if draw(st.booleans()):
            split = tokenizer.encode(draw(st.sampled_from(SPLIT)), add_special_tokens=False)
            ids += split[draw(st.integers(0, 1)) : draw(st.integers(1, len(split)))]
        else:
            ids.append(draw(st.integers(0, tokenizer.vocab_size - 1)))
    return ids


def updates(ids: list[int], cuts: list[int]) -> list[list[int]]:
    edges = [0, *sorted({c % (len(ids) + 1) for c in cuts}), len(ids)]
    return [ids[a:b] for a, b in itertools.pairwise(edges)]


def streamed(
    tokenizer: Tokenizer, pieces: list[list[int]], stops: Sequence[str], *, include: bool = False
) -> tuple[list[str], str | None]:
    """The deltas, and the stop string that ended them."""
    detokenizer = Detokenizer(
        tokenizer.decode_stream([tokenizer.vocab_size - 1]), stops, include_stop_str=include
    )
    deltas = []
    for piece in pieces:
        detokenizer.feed(piece)
        if detokenizer.stop_string is not None:
            break
        deltas.append(detokenizer.take(is_finished=False))
    deltas.append(detokenizer.take(is_finished=True))
    return deltas, detokenizer.stop_string


def first_stop(text: str, stops: Sequence[str]) -> tuple[str, str] | None:
    """The definition: the stop string that is complete first, the longest of those that are; the
    text before it and itself."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text.endswith(stop, 0, end)]
        if found:
            stop = max(found, key=len)
            return text[: end - len(stop)], stop
    return None


@settings(deadline=None, max_examples=200)
@given(st.data(), KIND, st.lists(st.integers(0, 99), max_size=6))
def test_deltas_join_to_the_text_of_all_tokens(
    data: st.DataObject, kind: str, cuts: list[int]
) -> None:
    tokenizer = TOKENIZERS[kind]()
    ids = data.draw(tokens(tokenizer))
    deltas, _ = streamed(tokenizer, updates(ids, cuts), [])
    expected = whole_characters(all_bytes(tokenizer, ids))
    assert "".join(deltas) == expected
    if kind == "byte-level" and expected.encode() == all_bytes(tokenizer, ids):
        assert tokenizer.decode(ids) == expected  # as the library has it


@settings(deadline=None, max_examples=200)
@given(st.data(), KIND, st.lists(st.integers(0, 99), max_size=6), st.booleans())
def test_a_stop_string_anywhere_cuts_the_text_of_all_tokens(
    data: st.DataObject, kind: str, cuts: list[int], include: bool
) -> None:
    """Stop strings are taken from the text, so that most are found: across tokens, inside them."""
    tokenizer = TOKENIZERS[kind]()
    ids = data.draw(tokens(tokenizer))
    text = whole_characters(all_bytes(tokenizer, ids))
    assume(text)
    stops = []
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text) - 1))
        stop = text[start : start + data.draw(st.integers(1, 6))]
        stops.append(stop + data.draw(st.sampled_from(["", "", "q"])))
    deltas, stop = streamed(tokenizer, updates(ids, cuts), stops, include=include)
    expected = first_stop(text, stops)
    if expected is None:
        assert ("".join(deltas), stop) == (text, None)
    else:
        before, found = expected
        assert ("".join(deltas), stop) == (before + (found if include else ""), found)
    seen = ""
    for delta in deltas[:-1]:  # nothing that was shown had to be taken back
        seen += delta
        assert text.startswith(seen)


@settings(deadline=None, max_examples=200)
@given(st.data(), KIND)
def test_bytes_and_offsets_of_the_tokens_are_those_of_the_text(
    data: st.DataObject, kind: str
) -> None:
    tokenizer = TOKENIZERS[kind]()
    ids = data.draw(tokens(tokenizer))
    shown = TokenText(tokenizer, as_ids=False)
    joined = b"".join(bytes(shown.bytes_of(i)) for i in ids if i not in tokenizer.special_ids)
    text = whole_characters(joined)
    offsets = TextOffsets(tokenizer, [tokenizer.vocab_size - 1], skip_special_tokens=True)
    for number, token_id in enumerate(ids):
        offset = offsets.push(token_id)
        before = whole_characters(all_bytes(tokenizer, ids[:number]))
        assert offset == len(before)
        if token_id not in tokenizer.special_ids:
            piece = shown.show(token_id)
            if "\ufffd" not in piece and whole_characters(joined).startswith(before + piece):
                assert text[offset : offset + len(piece)] == piece


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(deadline=None, max_examples=50)
@given(st.text(max_size=12), st.integers(0, 40))
def test_c82_a_prompt_is_never_said_again_wherever_it_ends(kind: str, text: str, cut: int) -> None:
    tokenizer = TOKENIZERS[kind]()
    ids = tokenizer.encode(text, add_special_tokens=False)
    assume(ids)
    assume(not tokenizer.special_ids.intersection(ids))
    cut = cut % len(ids) + 1
    stream = tokenizer.decode_stream(ids[:cut])
    said = "".join(map(stream.step, ids[cut:]))
    data = all_bytes(tokenizer, ids)
    prompt = whole_characters(all_bytes(tokenizer, ids[:cut]))
    assert said == whole_characters(data)[len(prompt) :]


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("character", SPLIT[:3])
def test_c83_a_character_cut_at_the_end_is_dropped_whatever_the_stop_strings(
    kind: str, character: str
) -> None:
    tokenizer = TOKENIZERS[kind]()
    ids = tokenizer.encode("ab" + character, add_special_tokens=False)
    last = tokenizer.encode(character, add_special_tokens=False)
    assert len(last) > 1 or character in "\u20ac\u6f22"
    cut = ids[:-1]
    expected = whole_characters(all_bytes(tokenizer, cut))
    for stops in ([], ["zz"], ["b" + character]):
        for pieces in ([cut], [[i] for i in cut]):
            deltas, stop = streamed(tokenizer, pieces, stops)
            assert stop is None
            assert "".join(deltas) == expected
            assert "\ufffd" not in "".join(deltas)
