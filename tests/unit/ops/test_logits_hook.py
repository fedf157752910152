"""The hook on logits: what it sees, what it may change, and what happens when it raises."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.ops.library import available_isas
from octavo.ops.plan import LOGIT_CHUNK
from octavo.ops.program import Op, Operand, Rows
from octavo.ops.step import Float32Array, LogitsHook, SampleOutputArrays, SamplingArrays
from tests.fakes.plan_rig import PlanRig, plan_rig

VOCAB = 37  # rows of logits are padded in memory
NUM_ROWS = 2 * LOGIT_CHUNK + 5
each_isa = pytest.mark.parametrize("isa", available_isas())


def record(rig: PlanRig, *, is_processed: bool = False) -> Operand:
    """The sample segment as recorded for a server with logits processors."""
    x = rig.buffer(VOCAB, Rows.L)
    if not is_processed:
        rig.emit_sample(Op.LOGPROBS, [x], i=[0])
    for op in (Op.MASK, Op.LOGITS_HOOK, Op.PENALIZE):
        rig.emit_sample(op, [x])
    if is_processed:
        rig.emit_sample(Op.LOGPROBS, [x], i=[1])
    rig.emit_sample(Op.SAMPLE, [x])
    rig.build()
    return x


def run(
    hook: LogitsHook | None,
    logits: Float32Array,
    sampling: SamplingArrays,
    *,
    isa: str | None = None,
) -> tuple[SampleOutputArrays, list[int]]:
    """Output of a step with this hook, and the last tokens."""
    with plan_rig(isa, 2, max_tokens=NUM_ROWS, max_requests=NUM_ROWS, vocab_size=VOCAB) as rig:
        x = record(rig)
        sampling.logits_hook = hook
        sampling.state_row[:] = np.arange(len(logits))
        output, step = rig.sample(x, logits, sampling, max_logprobs=1)
        return output, step.last_tokens.tolist()


def logits_of(num_rows: int = NUM_ROWS) -> Float32Array:
    return np.random.default_rng(0).standard_normal((num_rows, VOCAB)).astype(np.float32)


@each_isa
def test_the_hook_gets_every_row_once_in_chunks_and_its_changes_count(isa: str) -> None:
    logits = logits_of()
    chosen = np.random.default_rng(1).integers(0, VOCAB, NUM_ROWS)
    calls: list[tuple[int, Float32Array]] = []

    def hook(first_row: int, rows: Float32Array) -> None:
        calls.append((first_row, rows.copy()))
        rows[np.arange(len(rows)), chosen[first_row : first_row + len(rows)]] += 100

    output, last_tokens = run(hook, logits, SamplingArrays(NUM_ROWS), isa=isa)
    assert [first for first, _ in calls] == [0, LOGIT_CHUNK, 2 * LOGIT_CHUNK]
    np.testing.assert_array_equal(np.concatenate([rows for _, rows in calls]), logits)
    assert output.sampled.tolist() == last_tokens == chosen.tolist()
    assert not output.hook_errors


@each_isa
def test_the_hook_sees_masked_logits_and_its_changes_are_penalized(isa: str) -> None:
    sampling = SamplingArrays(1)
    sampling.uses_masks = sampling.uses_bias = True
    sampling.mask_row[0] = 0
    sampling.masks = np.array([[0b111, 0]], np.uint32)
    sampling.bias_offsets[:] = [0, 1]
    sampling.bias_ids, sampling.bias_values = np.array([1], np.int32), np.array([-9], np.float32)
    seen: list[Float32Array] = []

    def hook(first_row: int, rows: Float32Array) -> None:
        seen.append(rows.copy())
        rows[0, :3] = [1, 5, 2]

    output, _ = run(hook, logits_of(1), sampling, isa=isa)
    assert np.isfinite(seen[0][0, :3]).all()
    assert (seen[0][0, 3:] == -np.inf).all()
    assert output.sampled.tolist() == [2]  # 1 would win but for its bias


@each_isa
def test_raw_logprobs_are_of_the_logits_before_the_hook(isa: str) -> None:
    logits = logits_of(2)
    sampling = SamplingArrays(2)
    sampling.num_logprobs[:] = 1

    def hook(first_row: int, rows: Float32Array) -> None:
        rows[:, 7] += 50

    output, _ = run(hook, logits, sampling, isa=isa)
    expected = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert output.sampled.tolist() == [7, 7]
    np.testing.assert_allclose(output.logprob_values[:, 0], expected[:, 7], atol=1e-5)
    np.testing.assert_allclose(output.logprob_values[:, 1], expected.max(1), atol=1e-5)


@each_isa
def test_an_exception_fails_the_rows_of_its_chunk_and_no_other(isa: str) -> None:
    logits, error = logits_of(), ValueError("no")

    def hook(first_row: int, rows: Float32Array) -> None:
        if first_row == LOGIT_CHUNK:
            raise error

    output, last_tokens = run(hook, logits, SamplingArrays(NUM_ROWS), isa=isa)
    failed = slice(LOGIT_CHUNK, 2 * LOGIT_CHUNK)
    assert set(output.hook_errors.values()) == {error}
    assert set(output.status[failed]) == {SampleOutputArrays.HOOK_FAILED}
    assert set(last_tokens[failed]) == {0}
    expected = logits.argmax(1)
    for part in (slice(0, LOGIT_CHUNK), slice(2 * LOGIT_CHUNK, None)):
        assert not output.status[part].any()
        assert output.sampled[part].tolist() == expected[part].tolist()


def test_an_interrupt_in_the_hook_reaches_the_caller_after_the_step() -> None:
    def hook(first_row: int, rows: Float32Array) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(hook, logits_of(3), SamplingArrays(3))


def test_a_step_without_a_hook_follows_one_with_a_hook() -> None:
    calls: list[int] = []
    logits, sampling = logits_of(3), SamplingArrays(3)
    with plan_rig(vocab_size=VOCAB) as rig:
        x = record(rig)
        sampling.logits_hook = lambda first_row, rows: calls.append(first_row)
        first, _ = rig.sample(x, logits, sampling)
        sampling.logits_hook = None
        second, _ = rig.sample(x, logits, sampling)
    assert calls == [0]
    assert first.sampled.tolist() == second.sampled.tolist()


def test_processed_logprobs_are_of_the_logits_after_the_hook() -> None:
    logits, sampling = logits_of(2), SamplingArrays(2)
    sampling.num_logprobs[:] = 0

    def hook(first_row: int, rows: Float32Array) -> None:
        rows[:] = -np.inf
        rows[:, 4:6] = 0

    sampling.logits_hook = hook
    with plan_rig(vocab_size=VOCAB) as rig:
        x = record(rig, is_processed=True)
        output, _ = rig.sample(x, logits, sampling, max_logprobs=0)
    assert output.sampled.tolist() == [4, 4]
    np.testing.assert_allclose(output.logprob_values[:, 0], np.log(0.5), atol=1e-6)
