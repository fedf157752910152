"""Limits of sampling parameters that need no model."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidParameter
from octavo.sampling_params import MAX_N, MAX_STOP_CHARACTERS, RequestOutputKind, SamplingParams


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


def test_tiny_temperatures_are_raised_so_that_logits_stay_finite() -> None:
    assert SamplingParams(temperature=0.001).temperature == 0.01
    assert not SamplingParams(temperature=0.001).is_greedy


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
        ("logprobs", [-1, 0, 20, None]),
        ("prompt_logprobs", [-1, 0, 20, None]),
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
        ("logprobs", [-2, 1.5, True]),
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
