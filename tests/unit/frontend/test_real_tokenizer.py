"""The front end over the default model's own tokenizer."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.frontend.detokenizer import Detokenizer
from octavo.frontend.input_processor import InputProcessor
from octavo.frontend.logprobs import LogprobsDecoder
from octavo.frontend.prompt import TextPrompt, TokensPrompt
from octavo.messages.engine import TokenLogprobs
from octavo.sampling_params import SamplingParams
from octavo.tokenizer.tokenizer import Tokenizer, load_tokenizer
from octavo.weights.hub import HubSettings, locate
from tests.fakes.model_config import model_config

TEXTS = [
    "The quick brown fox, 1234567890 times.\n\n\tIndented  twice.",
    "Größe, naïve café, Ærøskøbing",
    "日本語のテキストと한국어와中文。",
    "Привет, мир! שלום עולם مرحبا بالعالم",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 e\u0301",
    "def f(x):\n    return {'a': [x ** 2, -1e-9]}  # ok",
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    settings = HubSettings(cache_dir=str(tmp_path_factory.mktemp("hub")))
    return load_tokenizer(locate(None, settings))


def processor(tokenizer: Tokenizer, **changes: Any) -> InputProcessor:
    return InputProcessor(
        model_config(vocab_size=tokenizer.vocab_size, max_model_len=512, **changes), tokenizer
    )


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_token_by_token(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    detokenizer = Detokenizer(tokenizer.decode_stream([]))
    deltas = []
    for token_id in ids:
        detokenizer.feed([token_id])
        deltas.append(detokenizer.take(is_finished=False))
    assert "".join(deltas) == text
    assert not any("\ufffd" in delta for delta in deltas)


@pytest.mark.parametrize("text", TEXTS)
def test_a_stop_string_anywhere_in_the_text_ends_it_there(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    for start in range(len(text) - 1):
        stop = text[start : start + 3]
        detokenizer = Detokenizer(tokenizer.decode_stream([]), [stop])
        deltas = []
        for token_id in ids:
            detokenizer.feed([token_id])
            if detokenizer.stop_string is not None:
                break
            deltas.append(detokenizer.take(is_finished=False))
        deltas.append(detokenizer.take(is_finished=True))
        assert "".join(deltas) == text[: text.index(stop)]


def test_the_alphabet_stops_inside_a_token(tokenizer: Tokenizer) -> None:
    detokenizer = Detokenizer(tokenizer.decode_stream([]), ["DE"])
    detokenizer.feed(tokenizer.encode("ABCDEFGH", add_special_tokens=False))
    assert detokenizer.text == "ABC"


def test_a_prompt_that_ends_inside_a_character_is_not_repeated(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("Hi 🜁!", add_special_tokens=False)
    text_of_each = [tokenizer.decode([token_id]) for token_id in ids]
    num_prompt = next(i for i, text in enumerate(text_of_each) if "\ufffd" in text) + 1
    prompt, rest = ids[:num_prompt], ids[num_prompt:]
    detokenizer = Detokenizer(tokenizer.decode_stream(prompt))
    detokenizer.feed(rest)
    assert detokenizer.text == "🜁!"


def test_spelled_control_tokens_become_control_tokens(tokenizer: Tokenizer) -> None:
    made = processor(tokenizer).process(TextPrompt("<|im_end|>"), SamplingParams(), "r")
    assert made.prompt_token_ids == [tokenizer.token_to_id("<|im_end|>")]


def test_bad_words_cover_the_word_with_its_space(tokenizer: Tokenizer) -> None:
    params = processor(tokenizer).complete_params(SamplingParams(bad_words=["Paris"]))
    assert params.bad_words_token_ids == [
        tokenizer.encode("Paris", add_special_tokens=False),
        tokenizer.encode(" Paris", add_special_tokens=False),
    ]


def test_every_token_has_a_text_for_its_logprob(tokenizer: Tokenizer) -> None:
    decoder = LogprobsDecoder(tokenizer.token_bytes)
    ids = list(range(tokenizer.vocab_size))
    decoded = decoder.decode(TokenLogprobs(ids, [-1.0] * len(ids), ids))
    assert len(decoded) == len(ids)
    assert all(isinstance(logprob.decoded_token, str) for logprob in decoded.values())


def test_the_last_token_of_the_vocabulary_is_a_prompt_and_the_next_is_not(
    tokenizer: Tokenizer,
) -> None:
    last = tokenizer.vocab_size - 1
    processor(tokenizer).process(TokensPrompt([last]), SamplingParams(), "r")
    with pytest.raises(Exception, match=str(last + 1)):
        processor(tokenizer).process(TokensPrompt([last + 1]), SamplingParams(), "r")
