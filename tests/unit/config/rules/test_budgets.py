"""Tokens and requests of a step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.config.rules.budgets import Budgets, choose_budgets
from octavo.errors import ConfigError


def choose(**changes: Any) -> tuple[Budgets, str]:
    args: dict[str, Any] = {
        "max_num_batched_tokens": None,
        "max_num_scheduled_tokens": None,
        "max_num_seqs": None,
        "max_num_active_seqs": None,
        "max_model_len": 2048,
        "enable_chunked_prefill": True,
        "performance_mode": "balanced",
        **changes,
    }
    return choose_budgets(**args)


def test_the_defaults_on_cpu_are_512_tokens_and_128_requests() -> None:
    assert choose() == (Budgets(512, 128, is_given=False), "")


def test_the_throughput_mode_doubles_the_defaults_only() -> None:
    assert choose(performance_mode="throughput")[0] == Budgets(1024, 256, is_given=False)
    assert choose(performance_mode="throughput", max_num_seqs=8)[0] == Budgets(1024, 8, False)


def test_given_numbers_are_kept() -> None:
    assert choose(max_num_batched_tokens=4096, max_num_seqs=32) == (Budgets(4096, 32, True), "")


def test_the_smaller_limit_of_each_pair_counts() -> None:
    chosen = choose(
        max_num_batched_tokens=4096,
        max_num_scheduled_tokens=256,
        max_num_seqs=64,
        max_num_active_seqs=16,
    )[0]
    assert chosen == Budgets(256, 16, is_given=True)


def test_an_inner_limit_above_its_outer_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="--max-num-scheduled-tokens 9 must not exceed --max-num"):
        choose(max_num_batched_tokens=8, max_num_scheduled_tokens=9)
    with pytest.raises(ConfigError, match="--max-num-active-seqs 9 must not exceed --max-num-seqs"):
        choose(max_num_seqs=8, max_num_active_seqs=9)


def test_without_chunked_prefill_a_whole_prompt_fits_in_a_step() -> None:
    chosen, reason = choose(enable_chunked_prefill=False)
    assert chosen == Budgets(2048, 128, is_given=True)
    assert "a whole prompt" in reason
    with pytest.raises(ConfigError, match="--max-num-batched-tokens 100 is below --max-model-len"):
        choose(enable_chunked_prefill=False, max_num_batched_tokens=100)


def test_requests_are_lowered_to_few_tokens_and_tokens_raised_to_many_requests() -> None:
    assert choose(max_num_batched_tokens=64)[0] == Budgets(64, 64, is_given=True)
    assert choose(max_num_seqs=1000)[0] == Budgets(1000, 1000, is_given=False)


def test_fewer_tokens_than_requests_are_refused_if_both_are_given() -> None:
    with pytest.raises(ConfigError, match="--max-num-batched-tokens 8 is below --max-num-seqs 9"):
        choose(max_num_batched_tokens=8, max_num_seqs=9)


@given(
    st.none() | st.integers(1, 5000),
    st.none() | st.integers(1, 5000),
    st.booleans(),
    st.integers(1, 9000),
)
def test_every_running_request_gets_a_token_in_every_step(
    tokens: int | None, seqs: int | None, chunked: bool, window: int
) -> None:
    try:
        chosen = choose(
            max_num_batched_tokens=tokens,
            max_num_seqs=seqs,
            enable_chunked_prefill=chunked,
            max_model_len=window,
        )[0]
    except ConfigError:
        assert tokens is not None
        return
    assert 1 <= chosen.max_num_seqs <= chosen.max_num_batched_tokens
    assert chunked or chosen.max_num_batched_tokens >= window
