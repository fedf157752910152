"""What steps had to read and to compute, counted by hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import EngineError
from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import KVLayer
from octavo.ops.library import available_isas, load_library
from octavo.ops.program import Buffer, ElementType, Instruction, Op, Operand, Program, Rows
from octavo.ops.roofline import StepCounter, op_times, windows_of
from octavo.ops.step import StepArrays
from tests.fakes.memory_checkpoint import random_tensor


@dataclass
class PackedWeight:
    """As much of a packed weight as is counted."""

    n: int
    k: int
    stored_bytes: int


def step_of(requests: list[tuple[int, int]], num_logits: int = 0) -> StepArrays:
    """(new tokens, length after them) of each request."""
    step = StepArrays(max_tokens=512, max_requests=8, num_groups=1, max_blocks=1)
    step.num_tokens = sum(new for new, _ in requests)
    step.num_requests, step.num_logits = len(requests), num_logits
    step.query_start[1 : len(requests) + 1] = np.cumsum([new for new, _ in requests])
    step.seq_lens[: len(requests)] = [length for _, length in requests]
    return step


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 50)), min_size=1, max_size=8),
    st.sampled_from([None, 1, 7, 40]),
)
def test_pairs_and_tokens_are_those_that_a_mask_shows(
    requests: list[tuple[int, int]], window: int | None
) -> None:
    counter = StepCounter([window], 32)
    counter.add(step_of([(new, new + before) for new, before in requests]))
    pairs = tokens = 0
    for new, before in requests:
        query = np.arange(before, before + new)[:, None]
        key = np.arange(before + new)
        seen = (key <= query) & (key > query - (window or 10**6))
        pairs += int(seen.sum())
        tokens += int(seen.any(axis=0).sum())
    assert (counter.attended[window].pairs, counter.attended[window].tokens) == (pairs, tokens)


def test_totals_of_operations() -> None:
    layer = KVLayer(0, 1, 8, 8)
    program = Program(
        buffers=[Buffer(Rows.T, 64, ElementType.A8), Buffer(Rows.L, 64, ElementType.BF16)],
        forward=[
            Instruction(Op.LINEAR, Rows.T, [Operand(0)], weights=[0]),
            Instruction(Op.ATTENTION, Rows.T, [Operand(0)], i=[2, 0, 0, 0]),
            Instruction(Op.LINEAR, Rows.T, [Operand(0)], weights=[0]),
        ],
        sample=[Instruction(Op.LM_HEAD, Rows.L, [Operand(1)], weights=[1])],
        kv_layers=[layer],
    )
    assert windows_of(program) == [None]
    counter = StepCounter([None], 32)
    first = step_of([(3, 5)], num_logits=1)
    first.num_generated = 3
    counter.add(first)
    last = step_of([(40, 40)], num_logits=40)
    last.num_generated = 10
    counter.add(last)
    weights = [PackedWeight(32, 64, 1000), PackedWeight(100, 64, 9000)]
    timers = [*zip(program.forward, (10, 20, 30), strict=True), (program.sample[0], 5)]
    linear, attention, head = op_times(program, weights, 2, counter, timers, ElementType.BF16)
    assert (linear.op, linear.calls) == ("LINEAR", 4)
    assert linear.seconds == pytest.approx(40e-9)
    per_token = 2 * 2 * 32 * 64
    assert linear.bytes == 4000
    assert linear.operations == {"int8": 13 * per_token, "bf16": 30 * per_token}
    pairs = (3 + 4 + 5) + 40 * 41 // 2
    assert (attention.op, attention.bytes) == ("ATTENTION", 45 * 16 * 2)
    assert attention.operations == {"bf16": 2 * pairs * 2 * 16}
    assert (head.op, head.calls, head.bytes) == ("LM_HEAD", 3, 27000)
    assert head.operations == {"bf16": 41 * 2 * 100 * 64}
    as_generated = op_times(program, weights, 2, counter, timers, ElementType.A8)[0]
    assert as_generated.operations == {"int8": 43 * per_token}
    rotated = op_times(program, weights, 2, counter, timers, ElementType.A8R)[0]
    assert rotated.operations == as_generated.operations


@pytest.mark.parametrize("isa", available_isas())
def test_the_limits_of_the_machine_are_plausible(isa: str) -> None:
    library = load_library(isa)
    pool = library.create_pool(1)
    try:
        rates = [library.probe(pool, limit) for limit in range(3)]
        tensor = random_tensor("w", (48, 96), GGMLType.Q8_0, np.random.default_rng(0))
        weights = [library.pack_weight(pool, tensor, GGMLType.Q8_0) for _ in range(3)]
        rates.append(library.probe_weights(pool, weights, 2))
        with pytest.raises(EngineError, match="nothing to read"):
            library.probe_weights(pool, [], 2)
    finally:
        pool.close()
    assert all(1e8 < rate < 1e14 for rate in rates)
