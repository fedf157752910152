from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from octavo.api.openai.logprobs import (
    TextOffsets,
    TokenText,
    chat_logprobs,
    completion_logprobs,
    text_of_tokens,
)
from octavo.outputs import Logprob
from octavo.tokenizer.tokenizer import Tokenizer, load_tokenizer
from tests.fakes.byte_tokenizer import BOS, EOS, ByteTokenizer
from tests.fakes.gguf_writer import write_gguf
from tests.fakes.vocabularies import sentencepiece_metadata

TOKENIZER: Any = ByteTokenizer()
TEXT = TokenText(TOKENIZER, as_ids=False)


def offsets(prompt_ids: list[int], tokenizer: Any = TOKENIZER) -> TextOffsets:
    return TextOffsets(tokenizer, prompt_ids, skip_special_tokens=True)


@cache
def sentencepiece() -> Tokenizer:
    """A vocabulary whose texts begin with a space that is not theirs."""
    with TemporaryDirectory() as folder:
        return load_tokenizer(write_gguf(Path(folder, "m.gguf"), sentencepiece_metadata()))


@given(text=st.text(max_size=20))
def test_offsets_point_at_each_tokens_text(text: str) -> None:
    under_test = offsets([BOS])
    for token_id in TOKENIZER.encode(text, add_special_tokens=False):
        if token_id in TOKENIZER.special_ids:
            return  # the text spells a control token
        offset = under_test.push(token_id)
        piece = TOKENIZER.token_bytes(token_id)
        if piece.isascii():
            assert text[offset : offset + len(piece)] == piece.decode()
    assert under_test.push(EOS) == len(text)


@given(prompt=st.text(alphabet="ab\u20ac ", max_size=10), reply=st.text(alphabet="xy", max_size=5))
def test_a_reply_goes_on_where_its_prompt_ends(prompt: str, reply: str) -> None:
    ids = TOKENIZER.encode(prompt)
    under_test = offsets(ids)
    assert ids[0] == BOS
    found = under_test.push_prompt(prompt)
    assert found[0] == 0
    assert found == sorted(found)
    joined = prompt + reply
    for token_id in TOKENIZER.encode(reply, add_special_tokens=False):
        at = under_test.push(token_id)
        assert joined[at] == TOKENIZER.token_bytes(token_id).decode()


@given(st.text("\u20acab\U0001f600", max_size=6), st.integers(0, 24))
def test_the_text_of_cut_tokens_and_their_offsets_fit_together(text: str, cut: int) -> None:
    """A prompt of token ids that ends inside a character: the character is the output's."""
    data = list(text.encode())
    prompt, rest = data[:cut], data[cut:]
    echo = text_of_tokens(TOKENIZER, prompt)
    assert text.startswith(echo)
    under_test = offsets(prompt)
    found = under_test.push_prompt(echo) + [under_test.push(token_id) for token_id in rest]
    expected = [len(bytes(data[:i]).decode(errors="ignore")) for i in range(len(data))]
    assert found == expected


@given(st.text(st.characters(codec="utf-8", exclude_characters="\u2581"), max_size=20))
def test_offsets_of_a_sentencepiece_prompt(text: str) -> None:
    """The space that the vocabulary puts before a text is in its first token, not in the text."""
    tokenizer = sentencepiece()
    ids = tokenizer.encode(text, add_special_tokens=True)
    found = offsets(ids, tokenizer).push_prompt(text)
    shown = "".join(
        text[start:end] for start, end in zip(found, [*found[1:], len(text)], strict=True)
    )
    assert shown == text
    for token_id, offset, end in zip(ids, found, [*found[1:], len(text)], strict=True):
        piece = tokenizer.token_bytes(token_id)
        if token_id not in tokenizer.special_ids and len(piece) > 1 and not text.startswith(" "):
            assert text[offset:end] in (piece.decode(), piece.decode().removeprefix(" "))


def test_offsets_follow_a_text_that_its_tokenizer_normalizes() -> None:
    """ "cafe" with the accent as a character of its own becomes four characters, not five."""
    text = "cafe\u0301 ab"
    composed = "caf\u00e9 ab"
    ids = TOKENIZER.encode(composed, add_special_tokens=False)
    found = offsets(ids).push_prompt(text)
    spaces = [i for i, token_id in enumerate(ids) if token_id == ord(" ")]
    assert [found[i] for i in spaces] == [text.index(" ")]
    assert found[-1] == text.index("ab")


def test_a_token_outside_the_top_is_listed_apart() -> None:
    position = {5: Logprob(-9.0, 7, "e"), 1: Logprob(-0.1, 1, "a"), 2: Logprob(-2.0, 2, "b")}
    (entry,) = chat_logprobs([5], [position], num_top=2, text=TEXT).content
    assert (entry.token, entry.logprob) == ("e", -9.0)
    assert [top.token for top in entry.top_logprobs] == ["a", "b"]
    found = completion_logprobs([5], [position], [0], num_top=2, text=TEXT)
    assert found.top_logprobs == [{"a": -0.1, "b": -2.0, "e": -9.0}]


def test_tokens_that_look_the_same_keep_the_likelier_value() -> None:
    position = {
        130: Logprob(-3.0, 3, "\ufffd"),
        226: Logprob(-0.5, 1, "\ufffd"),
        1: Logprob(-1.0, 2, "a"),
    }
    found = completion_logprobs([130], [position], [0], num_top=3, text=TEXT)
    assert found.top_logprobs == [{"\ufffd": -0.5, "a": -1.0}]
    assert found.token_logprobs == [-3.0]
