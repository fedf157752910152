from __future__ import annotations

import pytest

from octavo.config.engine import SchedulerConfig
from octavo.core.step_limit import MAX_STEP_S, StepLimit


def limit(full_step_s: float, **config: object) -> StepLimit:
    return StepLimit(
        SchedulerConfig(**{"max_num_batched_tokens": 512, "max_num_seqs": 16, **config}),  # type: ignore[arg-type]
        full_step_s,
    )


@pytest.mark.parametrize(
    ("full_step_s", "expected"), [(0.0, 512), (0.4, 512), (0.5, 400), (0.8, 256), (100.0, 64)]
)
def test_it_begins_with_what_the_warm_up_took(full_step_s: float, expected: int) -> None:
    assert limit(full_step_s).num_tokens == expected


def test_every_running_request_gets_its_token_in_every_step() -> None:
    assert limit(100.0, max_num_seqs=128).num_tokens == 128


def test_it_never_exceeds_a_small_budget() -> None:
    assert limit(100.0, max_num_batched_tokens=48).num_tokens == 48


def test_a_given_budget_is_kept() -> None:
    made = limit(9.0, max_num_batched_tokens_is_given=True)
    made.observe(512, 9.0)
    assert made.num_tokens == 512


def test_without_chunks_a_step_must_hold_whole_prompts() -> None:
    assert limit(9.0, enable_chunked_prefill=False).num_tokens == 512


def test_it_follows_a_machine_that_becomes_slow_and_fast_again() -> None:
    made = limit(0.1)
    seconds_per_token = 0.004
    for _ in range(20):
        made.observe(made.num_tokens, made.num_tokens * seconds_per_token)
    assert made.num_tokens * seconds_per_token <= MAX_STEP_S
    assert made.num_tokens == 96
    for _ in range(20):
        made.observe(made.num_tokens, made.num_tokens * 0.0001)
    assert made.num_tokens == 512


def test_small_steps_do_not_count() -> None:
    made = limit(0.1)
    made.observe(1, 0.05)
    assert made.num_tokens == 512
