"""A head with the sampler behind it: the tokens of the sampler alone on the head's logits.

With few rows in a chunk the head tells the sampler the largest of every 32 logits, and greedy rows
keep no others: that must be seen in nothing but time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import StoredTensor
from octavo.ops.library import available_isas
from octavo.ops.program import ElementType, Op, Rows
from octavo.ops.step import SampleOutputArrays, SamplingArrays
from tests.fakes import sampler_rig
from tests.fakes.memory_checkpoint import float_tensor, random_tensor
from tests.fakes.plan_rig import F32, plan_rig
from tests.fakes.sampler_rig import draws, with_lists

each_isa = pytest.mark.parametrize("isa", available_isas())
HIDDEN = 256
NUM_ROWS = 35  # a chunk of 32, where every logit is kept, and one of 3
UNWRITTEN = np.float32(12345)
INPUT_TYPES = {GGMLType.F32: ElementType.F32, GGMLType.BF16: ElementType.BF16}
FILTERS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.05, "top_k": 3},
    {"top_k": 1},
    {"top_k": 40},
    {"top_p": 0.5},
    {"min_p": 0.1},
    {"min_p": 1.0},
    {"top_k": 50, "top_p": 0.9, "min_p": 0.01},
]


def hidden_rows(seed: int = 0) -> F32:
    return np.random.default_rng(seed).standard_normal((NUM_ROWS, HIDDEN)).astype(np.float32)


def head(vocab_size: int, kind: GGMLType) -> StoredTensor:
    return random_tensor("head", (vocab_size, HIDDEN), kind, np.random.default_rng(1))


def run(
    isa: str,
    tensor: StoredTensor,
    hidden: F32,
    sampling: SamplingArrays,
    *,
    is_kept: bool = False,
    max_logprobs: int = -1,
) -> tuple[SampleOutputArrays, F32, F32]:
    """What is sampled; the logits of all rows; the buffer of logits after the last chunk."""
    vocab_size = tensor.shape[0]
    with plan_rig(isa, 3, max_tokens=NUM_ROWS, vocab_size=vocab_size) as rig:
        rig.weights.append(rig.library.pack_weight(rig.pool, tensor, tensor.type))
        input_type = INPUT_TYPES.get(tensor.type, ElementType.A8)
        x, prepared = rig.buffer(HIDDEN, Rows.L), rig.buffer(HIDDEN, Rows.L, input_type)
        logits = rig.buffer(vocab_size, Rows.L, is_chunked=True)
        rig.emit(Op.PREPARE, [x], [prepared], rows=Rows.L, i=[input_type])
        rig.emit_sample(Op.LM_HEAD, [prepared], [logits], i=[] if is_kept else [0, 1])
        rig.program.sample[0].weights.append(0)
        if max_logprobs >= 0:
            rig.emit_sample(Op.LOGPROBS, [logits], i=[0, 0])
        rig.emit_sample(Op.PENALIZE, [logits])
        rig.emit_sample(Op.MASK, [logits])
        rig.emit_sample(Op.SAMPLE, [logits])
        plan = rig.build()
        plan.write(x.buffer, hidden)
        plan.write(logits.buffer, np.full((32, vocab_size), UNWRITTEN))
        step = rig.step(len(hidden), num_logits=len(hidden))
        output = SampleOutputArrays(len(hidden))
        output.reserve_logprobs(len(hidden), max_logprobs)
        assert plan.forward(step)
        assert plan.sample(step, sampling, output)
        (values,) = rig.library.linear(rig.pool, rig.weights, hidden)
        return output, values, plan.read(logits.buffer, 32)


@each_isa
@pytest.mark.parametrize("kind", [GGMLType.F32, GGMLType.BF16, GGMLType.Q8_0, GGMLType.Q4_K])
@pytest.mark.parametrize("vocab_size", [7, 64, 1003])
def test_every_filter_gives_the_tokens_of_the_sampler_alone(
    isa: str, kind: GGMLType, vocab_size: int
) -> None:
    sampling = draws(NUM_ROWS)
    for row in range(NUM_ROWS):
        chosen = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, **FILTERS[row % len(FILTERS)]}
        for name, value in chosen.items():
            getattr(sampling, name)[row] = value
    output, logits, _ = run(isa, head(vocab_size, kind), hidden_rows(), sampling)
    alone, _, _ = sampler_rig.run(logits, sampling, isa=isa)
    np.testing.assert_array_equal(output.sampled, alone.sampled)
    np.testing.assert_array_equal(output.status, 0)


@each_isa
@pytest.mark.parametrize("num_rows", [1, 4, 5, NUM_ROWS])
@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("vocab_size", [7, 64, 1003])
def test_greedy_rows_take_the_largest_logit_and_the_lowest_id(
    isa: str, num_rows: int, is_kept: bool, vocab_size: int
) -> None:
    values = np.random.default_rng(2).standard_normal((vocab_size, HIDDEN)).astype(np.float32)
    values[vocab_size // 2 :] = values[: vocab_size - vocab_size // 2]  # everything twice
    hidden = hidden_rows()[:num_rows]
    output, logits, buffer = run(
        isa, float_tensor("head", values), hidden, SamplingArrays(num_rows), is_kept=is_kept
    )
    np.testing.assert_array_equal(output.sampled[:num_rows], logits.argmax(1))
    written = (buffer[:num_rows] != UNWRITTEN).sum(1)
    if num_rows <= 4 and not is_kept:  # the block of the maximum alone
        assert (written <= 32).all()
    else:
        assert (written[: min(num_rows, 32)] == vocab_size).all()


@each_isa
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_that_are_no_numbers_say_so(isa: str, temperature: float) -> None:
    values = np.random.default_rng(2).standard_normal((1003, HIDDEN)).astype(np.float32)
    values[:, :5] = 0
    values[77, 0], values[990, 1] = 3e38, np.nan
    hidden = hidden_rows()
    hidden[:, :5] = 0
    hidden[3, 0] = 3e38  # +inf in one column
    hidden[34, 0] = -3e38  # -inf in one column
    with_nan, logits, _ = run(isa, float_tensor("head", values), hidden, draws(NUM_ROWS))
    assert np.isnan(logits[:, 990]).all()
    np.testing.assert_array_equal(with_nan.status, 1)
    values[990, 1] = 0
    sampling = draws(NUM_ROWS, temperature=temperature)
    output, _, _ = run(isa, float_tensor("head", values), hidden, sampling)
    assert np.flatnonzero(output.status).tolist() == [3]


@each_isa
def test_changed_rows_are_judged_by_their_changed_logits(isa: str) -> None:
    sampling = with_lists(SamplingArrays(NUM_ROWS))
    sampling.bias_offsets[4:], sampling.seen_offsets[4:] = 4, 5
    tensor = head(96, GGMLType.Q8_0)
    output, logits, _ = run(isa, tensor, hidden_rows(), sampling)
    alone, _, changed = sampler_rig.run(logits, sampling, isa=isa)
    assert (changed[:3].argmax(1) != logits[:3].argmax(1)).any()
    np.testing.assert_array_equal(output.sampled, alone.sampled)


@each_isa
def test_rows_that_report_keep_their_logits(isa: str) -> None:
    sampling = SamplingArrays(NUM_ROWS)
    sampling.num_logprobs[:] = -1
    sampling.num_logprobs[[1, 34]] = 3
    output, logits, _ = run(isa, head(1003, GGMLType.Q4_K), hidden_rows(), sampling, max_logprobs=3)
    alone, _, _ = sampler_rig.run(logits, sampling, isa=isa, logprobs="raw", max_logprobs=3)
    np.testing.assert_array_equal(output.sampled, alone.sampled)
    for name in ("logprob_ids", "logprob_values", "logprob_ranks"):
        got, expected = getattr(output, name), getattr(alone, name)
        np.testing.assert_array_equal(got[[1, 34]], expected[[1, 34]])
