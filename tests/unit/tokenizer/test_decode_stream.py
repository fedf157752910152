"""Streams of tokens give whole characters, once, and never the prompt."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.tokenizer.tokenizer import Tokenizer, load_tokenizer
from tests.fakes.gguf_writer import write_gguf
from tests.fakes.vocabularies import byte_level_metadata, sentencepiece_metadata


@cache
def byte_level() -> Tokenizer:
    with TemporaryDirectory() as folder:
        return load_tokenizer(write_gguf(Path(folder, "m.gguf"), byte_level_metadata()))


@cache
def sentencepiece() -> Tokenizer:
    with TemporaryDirectory() as folder:
        return load_tokenizer(write_gguf(Path(folder, "m.gguf"), sentencepiece_metadata()))


def ids_of_bytes(data: bytes) -> list[int]:
    """One byte-level token per byte."""
    by_bytes = {byte_level().token_bytes(i): i for i in range(byte_level().vocab_size)}
    return [by_bytes[bytes([byte])] for byte in data]


@settings(deadline=None)
@given(st.text(max_size=40), st.integers(0, 60))
def test_a_prompt_cut_anywhere_is_never_repeated(text: str, cut: int) -> None:
    """C82: the stream holds the text from the first character that ends in the output."""
    data = text.encode()
    cut = min(cut, len(data))
    ids = ids_of_bytes(data)
    stream = byte_level().decode_stream(ids[:cut])
    num_whole = len(data[:cut].decode(errors="ignore"))  # characters that the prompt completes
    assert "".join(map(stream.step, ids[cut:])) == text[num_whole:]


@settings(deadline=None)
@given(st.text(max_size=40))
def test_no_piece_holds_a_part_of_a_character(text: str) -> None:
    stream = byte_level().decode_stream()
    pieces = [stream.step(token_id) for token_id in ids_of_bytes(text.encode())]
    assert "".join(pieces) == text
    assert all(len(piece) <= 1 for piece in pieces)  # each byte completes one character at most


@settings(deadline=None)
@given(st.binary(max_size=24))
def test_bytes_that_are_no_text_decode_as_by_the_library(data: bytes) -> None:
    ids = ids_of_bytes(data + b".")  # the stop lets the last character be known as unfinished
    stream = byte_level().decode_stream()
    assert "".join(map(stream.step, ids)) == byte_level().decode(ids)


def test_an_invalid_prompt_leaves_no_trace() -> None:
    stream = byte_level().decode_stream(ids_of_bytes(b"ab\xff\x80\x80\x80"))
    assert "".join(map(stream.step, ids_of_bytes(b"cd"))) == "cd"


def test_an_unfinished_character_at_the_end_has_no_text() -> None:
    """C83: what `max_tokens` cuts off is dropped."""
    stream = byte_level().decode_stream()
    assert "".join(map(stream.step, ids_of_bytes("a\u20ac".encode()[:-1]))) == "a"


def test_special_tokens_are_hidden_unless_asked_for() -> None:
    tokenizer = byte_level()
    ids = [0, *tokenizer.encode("hi", add_special_tokens=False), 1, 2]
    hidden = tokenizer.decode_stream()
    assert "".join(map(hidden.step, ids)) == "hi<think>"
    shown = tokenizer.decode_stream(skip_special_tokens=False)
    assert "".join(map(shown.step, ids)) == "<|bos|>hi<|endoftext|><think>"


def test_a_special_token_inside_a_character_does_not_break_it() -> None:
    first, *rest = ids_of_bytes("\u20ac".encode())
    stream = byte_level().decode_stream()
    assert "".join(map(stream.step, [first, 0, *rest])) == "\u20ac"


@settings(deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\u2581"), max_size=30))
def test_sentencepiece_streams_join_to_the_decoded_text(text: str) -> None:
    tokenizer = sentencepiece()
    ids = tokenizer.encode(text, add_special_tokens=False)
    stream = tokenizer.decode_stream()
    joined = "".join(map(stream.step, ids))
    assert joined == tokenizer.decode(ids)
    assert joined == text or text.startswith(" ")  # the prefix space stands for a first space


def test_the_prefix_space_is_dropped_only_where_a_text_begins() -> None:
    tokenizer = sentencepiece()
    ids = tokenizer.encode("hello", add_special_tokens=False)
    at_start = tokenizer.decode_stream()
    assert "".join(map(at_start.step, ids)) == "hello"
    after_prompt = tokenizer.decode_stream(ids)
    assert "".join(map(after_prompt.step, ids)) == " hello"


@pytest.mark.parametrize("text", ["\u20ac\U0001f600", "\u1234x"])
def test_byte_tokens_complete_characters(text: str) -> None:
    tokenizer = sentencepiece()
    ids = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in text.encode()]
    assert None not in ids
    stream = tokenizer.decode_stream([1])
    assert "".join(stream.step(token_id) for token_id in ids if token_id is not None) == text
