"""What tokens say."""

from __future__ import annotations

import struct

import pytest

from octavo.messages.grammar import NO_TEXT, Vocabulary
from octavo.structured_output.token_texts import TokenTexts

WORDS = [b"<a>", b"x<a>", b"", b"<a", b"a>", NO_TEXT + b"<b>", NO_TEXT + b"<a>", b"<a>"]
TEXTS = TokenTexts(
    Vocabulary(struct.pack(f"={len(WORDS)}I", *map(len, WORDS)), b"".join(WORDS), [5])
)


def test_bytes_of_each_token() -> None:
    assert [TEXTS.bytes_of(i) for i in range(len(WORDS))] == WORDS
    assert TEXTS.text_of(5) == b"<b>"
    assert TEXTS.text_of(1) == b"x<a>"


def test_a_text_is_spelled_with_the_longest_tokens() -> None:
    assert TEXTS.spell(b"<a>") == [6]  # of several, one that is no text
    assert TEXTS.spell(b"<ax<a>a>") == [3, 1, 4]
    with pytest.raises(ValueError, match="no token"):
        TEXTS.spell(b"<a>?")


def test_tokens_that_are_a_text_are_found_whole() -> None:
    assert sorted(TEXTS.ids_of(b"<a>")) == [0, 6, 7]
    assert TEXTS.ids_of(b"<b>") == [5]
    assert TEXTS.ids_of(b"<a") == [3]
    assert TEXTS.ids_of(b"no") == []
