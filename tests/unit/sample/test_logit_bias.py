"""Biases and bans on single tokens."""

from __future__ import annotations

from octavo.sample.logit_bias import BAN, BadWords, LogitBias, MinTokens, logit_biases
from octavo.sampling_params import SamplingParams


def entries(params: SamplingParams, eos: list[int], generated: list[int]) -> dict[int, float]:
    biases = logit_biases(params, eos)
    for token_id in generated:
        for bias in biases:
            bias.append(token_id)
    return {key: value for bias in biases for key, value in as_dict(bias).items()}


def as_dict(bias: LogitBias) -> dict[int, float]:
    ids, values = bias.entries()
    assert len(ids) == len(values)
    return dict(zip(ids.tolist(), values.tolist(), strict=True))


def test_plain_parameters_have_no_bias_objects() -> None:
    assert logit_biases(SamplingParams(), [2]) == []


def test_ending_tokens_are_banned_until_min_tokens_are_generated() -> None:
    params = SamplingParams(min_tokens=2, stop_token_ids=[7])
    assert entries(params, [2], []) == {2: BAN, 7: BAN}
    assert entries(params, [2], [5]) == {2: BAN, 7: BAN}
    assert entries(params, [2], [5, 5]) == {}


def test_an_ignored_eos_may_be_generated_before_min_tokens() -> None:
    params = SamplingParams(min_tokens=2, ignore_eos=True, stop_token_ids=[7])
    assert entries(params, [2], []) == {7: BAN}


def test_a_one_token_word_is_always_banned() -> None:
    assert as_dict(BadWords([[9]])) == {9: BAN}


def test_a_longer_word_is_banned_only_where_it_would_be_completed() -> None:
    words = BadWords([[1, 2, 3], [2, 4]])
    assert as_dict(words) == {}
    words.append(1)
    words.append(2)
    assert as_dict(words) == {3: BAN, 4: BAN}
    words.append(2)
    assert as_dict(words) == {4: BAN}


def test_logit_bias_is_added_to_the_same_ids_every_time() -> None:
    params = SamplingParams(logit_bias={5: 1.5, 6: -100.0})
    assert entries(params, [], [5, 6]) == {5: 1.5, 6: -100.0}


def test_min_tokens_counts_down() -> None:
    minimum = MinTokens(1, [3, 3])
    assert minimum.entries().ids.tolist() == [3]
    minimum.append(0)
    assert minimum.entries().ids.tolist() == []
