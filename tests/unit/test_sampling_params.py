"""Limits of sampling parameters that need no model."""

from __future__ import annotations

import logging
import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidParameter
from octavo.sampling_params import (
    MAX_N,
    MAX_STOP_CHARACTERS,
    BeamSearchParams,
    RepetitionDetectionParams,
    RequestOutputKind,
    SamplingParams,
)


def test_the_defaults_are_vllms() -> None:
    params = SamplingParams()
    assert (params.n, params.temperature, params.top_p, params.top_k) == (1, 1.0, 1.0, 0)
    assert (params.min_p, params.repetition_penalty) == (0.0, 1.0)
    assert (params.presence_penalty, params.frequency_penalty) == (0.0, 0.0)
    assert (params.max_tokens, params.min_tokens, params.seed) == (16, 0, None)
    assert (params.logprobs, params.prompt_logprobs, params.stop) == (None, None, None)
    assert params.detokenize
    assert params.skip_special_tokens
    assert params.spaces_between_special_tokens
    assert not params.ignore_eos
    assert not params.include_stop_str_in_output
    assert params.output_kind is RequestOutputKind.CUMULATIVE


def test_a_temperature_of_zero_is_greedy_and_turns_the_filters_off() -> None:
    params = SamplingParams(temperature=0, top_p=0.5, top_k=3, min_p=0.1)
    assert params.is_greedy
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.0, 1.0, 0, 0.0)


@pytest.mark.parametrize("temperature", [0.001, 1e-9])
def test_tiny_temperatures_are_raised_with_a_warning(
    temperature: float, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        params = SamplingParams(temperature=temperature)
    assert params.temperature == 0.01
    assert not params.is_greedy
    assert f"temperature {temperature} is less than 0.01" in caplog.text


def test_ordinary_temperatures_are_taken_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    SamplingParams(temperature=0)
    SamplingParams(temperature=0.01)
    assert not caplog.records


def test_extreme_repetition_penalties_keep_logits_finite() -> None:
    assert SamplingParams(repetition_penalty=1e300).repetition_penalty == 1e30
    assert SamplingParams(repetition_penalty=1e-300).repetition_penalty == 1e-30
    assert SamplingParams(repetition_penalty=1.1).repetition_penalty == 1.1


def test_minus_one_means_not_given() -> None:
    params = SamplingParams(top_k=-1, seed=-1)
    assert params.top_k == 0
    assert params.seed is None


def test_one_stop_string_is_a_list_of_one() -> None:
    assert SamplingParams(stop="x").stop_strings == ["x"]
    assert SamplingParams(stop=["x", "y"]).stop_strings == ["x", "y"]
    assert SamplingParams().stop_strings == []


@pytest.mark.parametrize(
    ("field", "good"),
    [
        ("n", [1, MAX_N]),
        ("presence_penalty", [-2, 2, 0.5]),
        ("frequency_penalty", [-2.0, 2.0]),
        ("repetition_penalty", [0.01, 100, 1e300, 1e-300, 10**400]),
        ("temperature", [0, 2, 0.7]),
        ("top_p", [1e-9, 1]),
        ("top_k", [-1, 0, 1, 10**6]),
        ("min_p", [0, 1]),
        ("seed", [-(2**63), 2**64 - 1]),
        ("max_tokens", [0, 1, None]),
        ("min_tokens", [0, 16]),
        ("logprobs", [-1, 0, 20, None, True]),
        ("prompt_logprobs", [-1, 0, 20, None, True]),
        ("logprob_token_ids", [None, [3], list(range(128))]),
        ("stream_interval", [None, 1, 1000]),
    ],
)
def test_values_within_the_limits_are_taken(field: str, good: list[Any]) -> None:
    for value in good:
        SamplingParams(**{field: value})


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("n", [0, -1, MAX_N + 1, 1.0, "2", None, True]),
        ("presence_penalty", [-2.01, 2.01, math.nan, math.inf, "1", None]),
        ("frequency_penalty", [-3, 3, math.nan]),
        ("repetition_penalty", [0, -1, math.nan, math.inf]),
        ("temperature", [-0.1, 2.1, 10**400, math.nan, math.inf, -math.inf, "hot", None, True]),
        ("top_p", [0, -0.1, 1.1, math.nan]),
        ("top_k", [-2, 0.01, 5.0, math.nan, "3"]),
        ("min_p", [-0.1, 1.1, math.nan]),
        ("seed", [-(2**63) - 1, 2**64, 1.5, "x"]),
        ("max_tokens", [-1, 1.5, "3"]),
        ("min_tokens", [-1, 17, None]),
        ("logprobs", [-2, 1.5, False]),
        ("logprob_token_ids", [[], [0] * 129]),
        ("stream_interval", [0, -1, 1.5, "2", 2**64]),
        ("prompt_logprobs", [-2, "1"]),
        ("stop", ["", ["a", ""], [1], "x" * (MAX_STOP_CHARACTERS + 1)]),
        ("bad_words", [["a", ""]]),
        ("allowed_token_ids", [[]]),
        ("logit_bias", [{1: math.nan}, {1: math.inf}]),
    ],
)
def test_values_outside_are_refused_naming_field_and_value(field: str, bad: list[Any]) -> None:
    for value in bad:
        with pytest.raises(InvalidParameter) as caught:
            SamplingParams(**{field: value})
        assert caught.value.param == field
        assert field in caught.value.message
        assert f"(parameter={field}, value=" in caught.value.message


def test_the_sentence_is_vllms() -> None:
    with pytest.raises(InvalidParameter) as caught:
        SamplingParams(temperature=3.0)
    assert caught.value.message == (
        "temperature must be in [0, 2], got 3.0. (parameter=temperature, value=3.0)"
    )


def test_a_long_value_is_cut_in_the_sentence() -> None:
    with pytest.raises(InvalidParameter) as caught:
        SamplingParams(stop=["a" * 1000, ""])
    assert len(caught.value.message) < 300


def test_stop_strings_need_text() -> None:
    with pytest.raises(InvalidParameter, match="needs detokenize=True"):
        SamplingParams(stop="x", detokenize=False)
    SamplingParams(detokenize=False, stop_token_ids=[3])


def test_true_asks_for_one_logprob_as_in_vllm() -> None:
    params = SamplingParams(logprobs=True, prompt_logprobs=True)
    assert (params.logprobs, params.prompt_logprobs) == (1, 1)
    assert type(params.logprobs) is int


def test_asked_ids_say_how_many_logprobs_there_are() -> None:
    assert SamplingParams(logprob_token_ids=[4, 5]).num_logprobs == 2
    assert SamplingParams(logprob_token_ids=[4, 5], logprobs=2).num_logprobs == 2
    assert SamplingParams(logprobs=3).num_logprobs == 3
    assert SamplingParams().num_logprobs is None
    with pytest.raises(InvalidParameter, match="must equal the 2 of logprob_token_ids"):
        SamplingParams(logprob_token_ids=[4, 5], logprobs=3)


def test_numbers_of_numpy_become_plain_ones() -> None:
    params = SamplingParams(temperature=np.float64(0.5), top_p=np.float64(0.25))
    assert (type(params.temperature), type(params.top_p)) == (float, float)


# ---- from_optional and clone


def test_none_means_the_default_where_none_is_no_value() -> None:
    params = SamplingParams.from_optional(
        n=None, temperature=None, top_p=None, top_k=None, repetition_penalty=None, max_tokens=None
    )
    assert params == SamplingParams(max_tokens=None)


def test_logit_bias_may_have_ids_as_text_and_is_clamped() -> None:
    params = SamplingParams.from_optional(logit_bias={"5": 300, 7: -1.5, "9": -1e9})
    assert params.logit_bias == {5: 100, 7: -1.5, 9: -100}
    with pytest.raises(InvalidParameter) as caught:
        SamplingParams.from_optional(logit_bias={"x": 1})
    assert caught.value.param == "logit_bias"


def test_a_clone_shares_nothing_unless_it_may() -> None:
    params = SamplingParams(stop=["a"], logit_bias={1: 2.0})
    clone = params.clone()
    assert clone == params
    clone.logit_bias = {}
    assert isinstance(clone.stop, list)
    clone.stop.append("b")
    assert params.stop == ["a"]
    assert params.logit_bias == {1: 2.0}
    shared = SamplingParams(stop=["a"], skip_clone=True)
    assert shared.clone().stop is shared.stop


# ---- repetition


def met(generated: list[int], *, prompt: tuple[int, ...] = (), **limits: int) -> bool:
    return RepetitionDetectionParams(**limits).is_met([*prompt, *generated], len(prompt))


def test_a_pattern_that_repeats_often_enough_is_found() -> None:
    assert met([9, 1, 2, 3, 1, 2, 3, 1, 2, 3], max_pattern_size=3, min_count=3)
    assert not met([9, 1, 2, 3, 1, 2, 3], max_pattern_size=3, min_count=3)
    assert not met([1, 2, 3, 1, 2, 3, 1, 2, 4], max_pattern_size=3, min_count=3)
    assert met([7, 7, 7], max_pattern_size=1, min_count=3)


def test_patterns_outside_the_sizes_do_not_count() -> None:
    assert not met([5] * 3, max_pattern_size=3, min_pattern_size=2, min_count=2)
    assert met([5] * 4, max_pattern_size=3, min_pattern_size=2, min_count=2)
    assert not met([1, 2, 3, 4] * 3, max_pattern_size=3, min_count=2)
    assert not met([5] * 9)


def test_the_prompt_does_not_count() -> None:
    assert not met([1], prompt=(1, 1, 1), max_pattern_size=1, min_count=2)
    assert met([1, 1], prompt=(1, 1), max_pattern_size=1, min_count=2)


@given(
    st.lists(st.integers(0, 2), max_size=24),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(2, 4),
)
def test_repetitions_are_those_that_a_plain_search_finds(
    tokens: list[int], shortest: int, longest: int, count: int
) -> None:
    longest = max(longest, shortest)
    expected = any(
        len(tokens) >= size * count
        and tokens[len(tokens) - size * count :] == tokens[len(tokens) - size :] * count
        for size in range(max(shortest, 1), longest + 1)
    )
    limits = RepetitionDetectionParams(longest, shortest, count)
    assert limits.is_met(tokens, 0) is expected


@pytest.mark.parametrize(
    "limits",
    [
        {"max_pattern_size": -1},
        {"min_pattern_size": 2, "max_pattern_size": 1},
        {"max_pattern_size": 3},
        {"max_pattern_size": 3, "min_count": 1},
        {"max_pattern_size": 3, "min_count": 2.0},
        {"max_pattern_size": 10**6, "min_count": 2},
    ],
)
def test_limits_of_repetition_detection(limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter) as caught:
        RepetitionDetectionParams(**limits)
    assert caught.value.param == "repetition_detection"


# ---- beam search


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("beam_width", [0, MAX_N + 1, 1.5, None]),
        ("max_tokens", [0, None, True]),
        ("temperature", [-1, 3, math.nan]),
        ("length_penalty", [math.nan, math.inf, 1e9]),
    ],
)
def test_limits_of_beam_search(field: str, bad: list[Any]) -> None:
    for value in bad:
        with pytest.raises(InvalidParameter) as caught:
            BeamSearchParams(**{"beam_width": 2, "max_tokens": 4, field: value})
        assert caught.value.param == field


@given(
    st.builds(
        SamplingParams,
        temperature=st.floats(0, 2),
        top_p=st.floats(0, 1, exclude_min=True),
        top_k=st.integers(-1, 100),
        seed=st.none() | st.integers(0, 2**63),
        stop=st.none() | st.text(min_size=1) | st.lists(st.text(min_size=1)),
        max_tokens=st.none() | st.integers(0, 100),
        logit_bias=st.none() | st.dictionaries(st.integers(0, 100), st.floats(-100, 100)),
    )
)
def test_parameters_cross_a_process_boundary_unchanged(params: SamplingParams) -> None:
    packed = msgspec.msgpack.encode(params)
    assert msgspec.msgpack.decode(packed, type=SamplingParams) == params
