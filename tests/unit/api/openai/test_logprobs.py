from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from octavo.api.openai.logprobs import TextOffsets, TokenText, chat_logprobs, completion_logprobs
from octavo.outputs import Logprob
from tests.fakes.byte_tokenizer import BOS, EOS, ByteTokenizer

TOKENIZER: Any = ByteTokenizer()
TEXT = TokenText(TOKENIZER, as_ids=False)


@given(text=st.text(max_size=20))
def test_offsets_point_at_each_tokens_text(text: str) -> None:
    offsets = TextOffsets(TOKENIZER, skip_special_tokens=True)
    for token_id in TOKENIZER.encode(text, add_special_tokens=False):
        if token_id in TOKENIZER.special_ids:
            return  # the text spells a control token
        offset = offsets.push(token_id)
        piece = TOKENIZER.token_bytes(token_id)
        if piece.isascii():
            assert text[offset : offset + len(piece)] == piece.decode()
    assert offsets.push(EOS) == len(text)


@given(prompt=st.text(alphabet="ab\u20ac ", max_size=10), reply=st.text(alphabet="xy", max_size=5))
def test_a_reply_goes_on_where_its_prompt_ends(prompt: str, reply: str) -> None:
    offsets = TextOffsets(TOKENIZER, skip_special_tokens=True)
    ids = TOKENIZER.encode(prompt)
    assert ids[0] == BOS
    found = offsets.push_prompt(ids, prompt)
    assert found[0] == 0
    assert found == sorted(found)
    joined = prompt + reply
    for token_id in TOKENIZER.encode(reply, add_special_tokens=False):
        at = offsets.push(token_id)
        assert joined[at] == TOKENIZER.token_bytes(token_id).decode()


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
