"""Steps as long as they may be, on machines whose true costs the limit must find out."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.config.engine import SchedulerConfig
from octavo.core.step_limit import MAX_STEP_S, MIN_CHUNK_TOKENS, StepCost, StepLimit, StepLoad


def limit(full_step_s: float, **config: object) -> StepLimit:
    return StepLimit(
        SchedulerConfig(**{"max_num_batched_tokens": 512, "max_num_seqs": 16, **config}),  # type: ignore[arg-type]
        full_step_s,
    )


@dataclass
class Machine:
    """What steps really take."""

    token_s: float
    attended_s: float
    overhead_s: float = 0.002

    def seconds(self, load: StepLoad) -> float:
        return (
            self.overhead_s + load.num_tokens * self.token_s + load.num_attended * self.attended_s
        )


def prefill(
    made: StepLimit, machine: Machine, num_tokens: int, *, start: int = 0, num_streams: int = 0
) -> list[float]:
    """The times of the steps that compute a prompt, among streams that decode."""
    times, computed = [], start
    while computed < num_tokens:
        load = StepLoad()
        for _ in range(num_streams):
            load.add(1, 500)
        chunk = made.chunk(load, num_tokens - computed, computed)
        assert chunk > 0
        load.add(chunk, computed)
        computed += chunk
        times.append(machine.seconds(load))
        made.observe(load, times[-1])
    return times


@pytest.mark.parametrize(
    ("full_step_s", "expected"),
    [(0.0, 512), (0.25, 512), (0.3, 480), (0.5, 304), (0.8, 208), (100.0, 16)],
)
def test_it_begins_with_what_the_warm_up_took(full_step_s: float, expected: int) -> None:
    made = limit(full_step_s)
    assert made.num_tokens == made.chunk(StepLoad(), 512, 0) == expected


def test_a_given_budget_is_kept() -> None:
    made = limit(9.0, max_num_batched_tokens_is_given=True)
    made.observe(StepLoad(512, 512 * 256, 1), 9.0)
    assert made.num_tokens == made.chunk(StepLoad(), 512, 9000) == 512


def test_without_chunks_a_step_must_hold_whole_prompts() -> None:
    assert limit(9.0, enable_chunked_prefill=False).chunk(StepLoad(), 512, 0) == 512


@pytest.mark.parametrize("context_like_a_token", [500, 2048, 20_000])
@pytest.mark.parametrize("token_s", [0.0003, 0.0007, 0.003])
def test_no_step_of_a_long_prompt_takes_much_longer_than_it_may(
    token_s: float, context_like_a_token: int
) -> None:
    """Whatever attention costs: the warm-up cannot know."""
    machine = Machine(token_s, token_s / context_like_a_token)
    made = limit(512 * token_s)
    shortest = StepLoad()
    shortest.add(8 + MIN_CHUNK_TOKENS, 6000)
    least_s = machine.seconds(shortest)
    times = prefill(made, machine, 6000, num_streams=8)
    assert max(times) < max(MAX_STEP_S * 1.35, least_s)
    again = prefill(made, machine, 6000, num_streams=8)
    assert max(again) < max(MAX_STEP_S * 1.1, least_s)
    full = [t for t in again[:-1] if t > MAX_STEP_S * 0.5]
    assert len(full) > 0.8 * (len(again) - 1) or max(again) < MAX_STEP_S * 0.5  # none too short


def test_a_prompt_that_goes_on_from_a_long_prefix_hit_gets_short_chunks_at_once() -> None:
    machine = Machine(0.0007, 0.0007 / 2048)
    made = limit(512 * 0.0007)
    assert max(prefill(made, machine, 400)) < MAX_STEP_S
    assert max(prefill(made, machine, 7000, start=6000)) < MAX_STEP_S * 1.1


def test_short_prompts_after_a_long_one_are_not_held_back() -> None:
    machine = Machine(0.0005, 0.0005 / 1000)
    made = limit(512 * 0.0005)
    prefill(made, machine, 6000)
    assert made.chunk(StepLoad(), 512, 0) == 512


@settings(deadline=None)
@given(st.integers(0, 2**32), st.floats(0.2, 5.0))
def test_it_follows_a_machine_that_becomes_slow_or_fast(seed: int, change: float) -> None:
    rng = random.Random(seed)
    machine = Machine(0.0008, 0.0008 / 1500)
    made = limit(512 * 0.0008)
    prefill(made, machine, 3000)
    machine.token_s *= change
    machine.attended_s *= change
    for _ in range(6):
        prefill(made, machine, rng.randint(500, 6000))
    assert max(prefill(made, machine, 6000)) < MAX_STEP_S * 1.1


def test_one_step_that_was_stopped_by_others_changes_little() -> None:
    made = limit(512 * 0.0007)
    load = StepLoad()
    load.add(512, 0)
    made.observe(load, 30.0)
    assert made.chunk(StepLoad(), 512, 0) >= 256


def test_steps_that_only_decode_do_not_count() -> None:
    made = limit(0.1)
    load = StepLoad()
    for _ in range(100):
        load.add(1, 10)
    made.observe(load, 3.0)
    assert made.chunk(StepLoad(), 512, 0) == 512


def test_a_first_chunk_goes_on_however_long_decoding_takes_and_a_second_waits() -> None:
    made = limit(512 * 0.0007)
    load = StepLoad()
    for _ in range(128):
        load.add(1, 8000)
    first = made.chunk(load, 512, 8000)
    assert MIN_CHUNK_TOKENS <= first < 64
    load.add(first, 8000)
    assert made.chunk(load, 512, 0) == 0


def test_two_prompts_share_the_time_of_a_step() -> None:
    made = limit(512 * 0.0004)
    load = StepLoad()
    load.add(100, 0)
    second = made.chunk(load, 400, 6000)
    assert 0 < second < 400
    load.add(second, 6000)
    assert StepCost(0.0004).seconds(load) <= MAX_STEP_S


def test_where_steps_are_slow_whatever_is_in_them_short_chunks_would_not_help() -> None:
    """A machine that others use: each step waits for its turn, so more should be done in it."""
    machine = Machine(0.0007, 0.0007 / 2000, overhead_s=0.3)
    made = limit(512 * 0.0007)
    for _ in range(100):
        decode = StepLoad(8)
        made.observe(decode, machine.seconds(decode))
    times = prefill(made, machine, 6000, num_streams=8)
    assert len(times) < 150  # chunks of 16 tokens would be 375
    assert max(times) < machine.overhead_s + MAX_STEP_S / 2
