from __future__ import annotations

import logging
from typing import Any

import pytest

from octavo.errors import InvalidParameter, PromptTooLong, RequestError
from octavo.frontend.input_processor import InputProcessor
from octavo.frontend.prompt import Prompt, TextPrompt, TokensPrompt
from octavo.messages.engine import EngineCoreRequest
from octavo.sampling_params import SamplingParams
from tests.fakes.byte_tokenizer import BOS, EOS, VOCAB_SIZE, ByteTokenizer
from tests.fakes.model_config import model_config

WINDOW = 64


def processor(**changes: Any) -> InputProcessor:
    return InputProcessor(model_config(**changes), ByteTokenizer(), clock=lambda: 123.0)


def process(
    prompt: str | list[int] = "hi", under_test: InputProcessor | None = None, **params: Any
) -> EngineCoreRequest:
    made = TextPrompt(prompt) if isinstance(prompt, str) else TokensPrompt(prompt)
    return (under_test or processor()).process(made, SamplingParams(**params), "r")


def test_a_text_prompt_becomes_a_complete_request() -> None:
    request = processor().process(
        TextPrompt("hi"), SamplingParams(), "r", priority=3, cache_salt="s"
    )
    assert request.prompt_token_ids == [BOS, 104, 105]
    assert request.eos_token_ids == [EOS]
    assert request.arrival_time_s == 123.0
    assert (request.priority, request.cache_salt) == (3, "s")


def test_a_prompt_may_bring_its_own_salt_whichever_its_kind() -> None:
    prompts: list[Prompt] = [
        TextPrompt("hi", cache_salt="mine"),
        TokensPrompt([1, 2], cache_salt="mine"),
    ]
    for prompt in prompts:
        assert processor().process(prompt, SamplingParams(), "r").cache_salt == "mine"


@pytest.mark.parametrize("salt", ["", "a/b", "a@b", "a\\b", "a\0b", "x" * 129, "\ud800", 7])
def test_salts_that_are_not_fit_for_a_name_are_refused(salt: Any) -> None:
    with pytest.raises(InvalidParameter, match=r"cache_salt must be .* got ") as caught:
        processor().process(TokensPrompt([1], cache_salt=salt), SamplingParams(), "r")
    assert caught.value.param == "cache_salt"


def test_special_tokens_are_added_only_if_asked_for() -> None:
    made = processor().process(TextPrompt("hi", add_special_tokens=False), SamplingParams(), "r")
    assert made.prompt_token_ids == [104, 105]


def test_the_callers_params_are_not_changed() -> None:
    params = SamplingParams(max_tokens=None, bad_words=["x"], logit_bias={1: 1000.0})
    processor().process(TextPrompt("hi"), params, "r")
    assert params == SamplingParams(max_tokens=None, bad_words=["x"], logit_bias={1: 1000.0})


@pytest.mark.parametrize("token_id", [-1, VOCAB_SIZE, 10**9, 2**63, -(2**63) - 1, 1.5, "x", None])
def test_a_prompt_token_outside_the_vocabulary_is_refused(token_id: Any) -> None:
    with pytest.raises(InvalidParameter) as caught:
        process([1, token_id])
    assert caught.value.param == "prompt"
    assert f"vocabulary of {VOCAB_SIZE} tokens" in caught.value.message
    assert str(token_id) in caught.value.message


def test_the_ends_of_the_vocabulary_are_accepted() -> None:
    assert process([0, VOCAB_SIZE - 1]).prompt_token_ids == [0, VOCAB_SIZE - 1]


@pytest.mark.parametrize("prompt", [TokensPrompt([]), TextPrompt("", add_special_tokens=False)])
def test_an_empty_prompt_is_refused(prompt: TokensPrompt | TextPrompt) -> None:
    with pytest.raises(InvalidParameter, match="must not be empty") as caught:
        processor().process(prompt, SamplingParams(), "r")
    assert caught.value.param == "prompt"


def test_a_prompt_longer_than_the_window_is_refused_with_both_numbers() -> None:
    with pytest.raises(PromptTooLong) as caught:
        process([1] * 70)
    assert caught.value.param == "input_tokens"
    assert caught.value.message == (
        "This model's maximum context length is 64 tokens. However, your prompt contains 70 input "
        "tokens, which exceeds this limit even without any output tokens. Please reduce the length "
        "of the input prompt. (parameter=input_tokens, value=70)"
    )


def test_a_prompt_that_fills_the_window_leaves_no_room() -> None:
    with pytest.raises(PromptTooLong, match="leaves no room for an output token"):
        process([1] * WINDOW)


def test_max_tokens_over_the_window_is_refused_with_both_numbers() -> None:
    with pytest.raises(InvalidParameter) as caught:
        process([1], max_tokens=65)
    assert caught.value.param == "max_tokens"
    assert "max_tokens=65 cannot be greater than max_model_len=64" in caught.value.message


@pytest.mark.parametrize(
    ("num_prompt", "asked", "given"),
    [(60, 16, 4), (60, 4, 4), (60, None, 4), (1, None, 63), (63, None, 1), (63, 64, 1), (1, 5, 5)],
)
def test_max_tokens_is_what_was_asked_or_the_room_left(
    num_prompt: int, asked: int | None, given: int
) -> None:
    assert process([1] * num_prompt, max_tokens=asked).sampling_params.max_tokens == given


def test_a_prompt_alone_may_fill_the_window_and_the_cache() -> None:
    """`max_tokens` of 0: nothing is generated, the prompt is computed for its logprobs."""
    assert process([1] * 64, max_tokens=0).sampling_params.max_tokens == 0
    with pytest.raises(PromptTooLong, match="65 input tokens"):
        process([1] * 65, max_tokens=0)
    with pytest.raises(PromptTooLong, match="no room for an output token"):
        process([1] * 64)
    small = processor()
    small.set_limits(64, 32)
    assert process([1] * 32, small, max_tokens=0).sampling_params.max_tokens == 0
    with pytest.raises(PromptTooLong, match="whole KV cache holds 32"):
        process([1] * 33, small, max_tokens=0)


def test_a_negative_max_tokens_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="max_tokens must be at least 0"):
        process(max_tokens=-1)


def test_a_lower_window_of_the_core_counts() -> None:
    under_test = processor()
    under_test.set_limits(32, 1024)
    assert process([1], under_test, max_tokens=None).sampling_params.max_tokens == 31
    with pytest.raises(PromptTooLong):
        process([1] * 40, under_test)


def small_cache() -> InputProcessor:
    under_test = processor()
    under_test.set_limits(WINDOW, 20)
    return under_test


def test_a_prompt_over_the_whole_kv_cache_is_refused() -> None:
    with pytest.raises(PromptTooLong, match="whole KV cache holds 20") as caught:
        process([1] * 21, small_cache(), max_tokens=1)
    assert caught.value.param == "input_tokens"


def test_a_request_over_the_whole_kv_cache_is_refused_with_what_would_fit() -> None:
    with pytest.raises(InvalidParameter, match="at most 11 output tokens") as caught:
        process([1] * 10, small_cache(), max_tokens=12)
    assert caught.value.param == "max_tokens"
    assert process([1] * 10, small_cache(), max_tokens=11).sampling_params.max_tokens == 11


def test_without_max_tokens_the_whole_kv_cache_may_be_used() -> None:
    assert process([1] * 10, small_cache(), max_tokens=None).sampling_params.max_tokens == 11


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("logit_bias", {999999: 5.0}),
        ("logit_bias", {-1: 5.0}),
        ("logit_bias", {2**70: 5.0}),
        ("allowed_token_ids", [1, VOCAB_SIZE]),
        ("stop_token_ids", [-5]),
    ],
)
def test_token_ids_of_a_field_must_be_in_the_vocabulary(field: str, value: Any) -> None:
    with pytest.raises(InvalidParameter) as caught:
        process(**{field: value})
    assert caught.value.param == field
    assert caught.value.message.startswith(field)
    assert str(VOCAB_SIZE) in caught.value.message


def test_logit_bias_is_clamped_to_a_hundred() -> None:
    made = process(logit_bias={1: 1000.0, 2: -1000.0, 3: 0.5})
    assert made.sampling_params.logit_bias == {1: 100.0, 2: -100.0, 3: 0.5}


@pytest.mark.parametrize("field", ["logprobs", "prompt_logprobs"])
@pytest.mark.parametrize("value", [21, -1])
def test_more_logprobs_than_allowed_are_refused(field: str, value: int) -> None:
    with pytest.raises(InvalidParameter, match="greater than max allowed: 20") as caught:
        process(**{field: value})
    assert caught.value.param == field


def test_all_logprobs_mean_the_vocabulary_where_the_operator_allows_it() -> None:
    made = process(under_test=processor(max_logprobs=-1), logprobs=-1, prompt_logprobs=100)
    assert made.sampling_params.logprobs == VOCAB_SIZE
    assert made.sampling_params.prompt_logprobs == 100


def test_bad_words_are_tokenised_with_and_without_a_space() -> None:
    made = process(bad_words=[" DEF", "hello"])
    hello = list(b"hello")
    # " DEF" is two tokens, so the spaced form is no token sequence of its own
    assert made.sampling_params.bad_words_token_ids == [[260], hello]


def test_a_bad_word_with_its_own_spaced_token_is_banned_in_both_forms() -> None:
    class Spaced(ByteTokenizer):
        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            return {"no": [7], " no": [8]}[text]

    under_test = InputProcessor(model_config(), Spaced())
    params = under_test.complete_params(SamplingParams(bad_words=["no"]))
    assert params.bad_words_token_ids == [[7], [8]]


def test_a_bad_word_without_tokens_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="at least one token") as caught:
        process(bad_words=[" "])
    assert caught.value.param == "bad_words"


def test_asked_ids_are_counted_checked_and_may_be_more_than_max_logprobs() -> None:
    assert process(logprob_token_ids=list(range(100))).sampling_params.logprobs == 100
    with pytest.raises(InvalidParameter) as caught:
        process(logprob_token_ids=[VOCAB_SIZE])
    assert caught.value.param == "logprob_token_ids"


def test_stop_tokens_named_twice_count_once() -> None:
    assert process(stop_token_ids=[5, 6, 5]).sampling_params.stop_token_ids == [5, 6]


def test_logits_processors_look_at_parameters_before_the_core_does() -> None:
    under_test = processor(logits_processors=["tests.fakes.processors:Favour"])
    assert process(under_test=under_test, extra_args={"favoured_token": 5})
    with pytest.raises(InvalidParameter, match="favoured_token must be a token id") as caught:
        process(under_test=under_test, extra_args={"favoured_token": "x"})
    assert caught.value.param == "vllm_xargs"


@pytest.mark.parametrize("words", [["x"] * 129, ["x" * 1025], ["x" * 70_000]])
def test_too_many_bad_words_are_refused(words: list[str]) -> None:
    with pytest.raises(InvalidParameter, match="bad_words has") as caught:
        process(bad_words=words)
    assert caught.value.param == "bad_words"


def test_a_text_that_no_tokens_of_the_window_could_hold_is_not_even_encoded() -> None:
    tokenizer = ByteTokenizer()
    under_test = InputProcessor(model_config(), tokenizer)
    limit = WINDOW * tokenizer.max_token_characters
    with pytest.raises(PromptTooLong, match=f"at most {limit} characters") as caught:
        process("x" * (limit + 1), under_test)
    assert caught.value.param == "input_text"
    assert tokenizer.num_encoded == 0
    with pytest.raises(PromptTooLong) as caught:
        process("x" * limit, under_test)
    assert caught.value.param == "input_tokens"


@pytest.mark.parametrize("max_tokens", [None, 60])
def test_min_tokens_must_fit_behind_the_prompt(max_tokens: int | None) -> None:
    room = WINDOW - 10
    prompt = [1] * 10
    made = process(prompt, min_tokens=room, max_tokens=max_tokens)
    assert made.sampling_params.max_tokens == room
    with pytest.raises(InvalidParameter, match=f"room for {room}") as caught:
        process(prompt, min_tokens=room + 1, max_tokens=max_tokens)
    assert caught.value.param == "min_tokens"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"allowed_token_ids": [EOS], "min_tokens": 1}, "allowed_token_ids"),
        (
            {"allowed_token_ids": [5, EOS], "stop_token_ids": [5], "min_tokens": 1},
            "allowed_token_ids",
        ),
        ({"allowed_token_ids": [120], "bad_words": ["x"]}, "allowed_token_ids"),
        ({"stop_token_ids": list(range(VOCAB_SIZE)), "min_tokens": 1}, "stop_token_ids"),
        ({"stop_token_ids": list(range(VOCAB_SIZE))}, None),
        ({"allowed_token_ids": [EOS]}, None),
        ({"allowed_token_ids": [EOS], "min_tokens": 1, "ignore_eos": True}, None),
        ({"allowed_token_ids": [120, 121], "bad_words": ["x"]}, None),
        ({"allowed_token_ids": [120], "bad_words": ["xy"]}, None),
    ],
)
def test_what_no_token_can_satisfy_is_refused(params: dict[str, Any], field: str | None) -> None:
    if field is None:
        process(**params)
        return
    with pytest.raises(InvalidParameter, match="no token to begin with") as caught:
        process(**params)
    assert caught.value.param == field


def test_a_top_k_beyond_the_vocabulary_takes_nothing_away() -> None:
    assert process(top_k=VOCAB_SIZE - 1).sampling_params.top_k == VOCAB_SIZE - 1
    assert process(top_k=VOCAB_SIZE).sampling_params.top_k == 0
    assert process(top_k=10**30).sampling_params.top_k == 0


def test_two_bos_tokens_are_kept_and_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert process("<bos>hi").prompt_token_ids[:2] == [BOS, BOS]
    assert "two BOS tokens" in caplog.text


@pytest.mark.parametrize(
    ("prompt", "params", "field"),
    [
        (TextPrompt("hi"), SamplingParams(), "prompt"),
        (TokensPrompt([1]), SamplingParams(stop=["x"]), "stop"),
        (TokensPrompt([1]), SamplingParams(bad_words=["x"]), "bad_words"),
    ],
)
def test_without_a_tokenizer_text_is_refused(
    prompt: TextPrompt | TokensPrompt, params: SamplingParams, field: str
) -> None:
    with pytest.raises(RequestError, match="skip-tokenizer-init") as caught:
        InputProcessor(model_config(), None).process(prompt, params, "r")
    assert caught.value.param == field


def test_without_a_tokenizer_token_ids_are_served() -> None:
    made = InputProcessor(model_config(), None).process(TokensPrompt([1, 2]), SamplingParams(), "r")
    assert made.prompt_token_ids == [1, 2]
