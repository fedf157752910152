"""Tokens as bytes."""

from __future__ import annotations

import numpy as np

from octavo.messages.grammar import Vocabulary
from octavo.structured_output.vocabulary import byte_vocabulary, make_vocabulary
from tests.fakes.byte_tokenizer import BOS, EOS, VOCAB_SIZE, WORDS, ByteTokenizer


def tokens(vocabulary: Vocabulary) -> list[bytes]:
    lens = np.frombuffer(vocabulary.token_lens, np.uint32).tolist()
    ends = np.cumsum(lens).tolist()
    return [vocabulary.token_bytes[e - n : e] for n, e in zip(lens, ends, strict=True)]


def test_text_is_its_bytes_and_what_is_no_text_is_marked() -> None:
    made = make_vocabulary(ByteTokenizer(), VOCAB_SIZE + 3, [EOS])
    assert made.vocab_size == VOCAB_SIZE + 3
    assert tokens(made) == [
        *[bytes([byte]) for byte in range(256)],
        b"\xff<bos>",
        b"\xff<eos>",
        *WORDS,
        *[b""] * 3,
    ]
    assert made.eos_token_ids == [EOS]


def test_a_token_that_ends_outputs_is_no_text_even_if_the_tokenizer_thinks_so() -> None:
    made = make_vocabulary(ByteTokenizer(), VOCAB_SIZE, [EOS, ord("x")])
    assert tokens(made)[ord("x")] == b"\xffx"
    assert tokens(made)[BOS] == b"\xff<bos>"


def test_a_vocabulary_of_bytes_has_an_end_and_the_names_that_grammars_use() -> None:
    made = byte_vocabulary(["<|tool|>"])
    assert tokens(made) == [*[bytes([b]) for b in range(256)], b"\xff<end>", b"\xff<|tool|>"]
    assert made.eos_token_ids == [256]


def test_a_large_vocabulary_is_asked_for_its_size_once() -> None:
    """It takes some libraries a third of a millisecond: a minute and a half for 262,144 tokens."""

    class Counting(ByteTokenizer):
        num_asked = 0

        @property
        def vocab_size(self) -> int:
            self.num_asked += 1
            return VOCAB_SIZE

        @vocab_size.setter
        def vocab_size(self, value: int) -> None:
            pass

    tokenizer = Counting()
    make_vocabulary(tokenizer, VOCAB_SIZE, [EOS])
    assert tokenizer.num_asked == 1
