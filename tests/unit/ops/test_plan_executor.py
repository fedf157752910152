"""The plan executor: what it refuses, segments and chunks, abort, timers."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import numpy as np
import pytest

from octavo.errors import EngineError, StartupError
from octavo.ops.abi import ABI_VERSION, OvBuffer, OvInstr, OvOperand, OvPlanDesc, OvStep
from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import Activation, KVLayer
from octavo.ops.library import available_isas, load_library
from octavo.ops.program import ElementType, Op, Operand, Rows
from octavo.ops.step import SampleOutputArrays, SamplingArrays, StepArrays
from tests.fakes.memory_checkpoint import random_tensor
from tests.fakes.plan_rig import F32, PlanRig, plan_rig

ISAS = available_isas()
F32_TYPE = ElementType.F32


def normal(*shape: int, seed: int = 0) -> F32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def add_weight(rig: PlanRig, n: int, k: int, kind: GGMLType = GGMLType.F32) -> int:
    tensor = random_tensor("w", (n, k), kind, np.random.default_rng(len(rig.weights)))
    rig.weights.append(rig.library.pack_weight(rig.pool, tensor, kind))
    return len(rig.weights) - 1


# ---- what is refused


def emit_narrow_input(rig: PlanRig) -> None:
    rig.emit(Op.ADD, [rig.buffer(8), rig.buffer(4)], [rig.buffer(8)])


def emit_columns_outside(rig: PlanRig) -> None:
    rig.emit(Op.MUL, [Operand(rig.buffer(8).buffer, 4), rig.buffer(8)], [rig.buffer(8)])


def emit_other_rows(rig: PlanRig) -> None:
    rig.emit(Op.SCALE, [rig.buffer(8, Rows.L)], [rig.buffer(8)], f=[1.0])


def emit_prepared_input(rig: PlanRig) -> None:
    source = rig.buffer(32, dtype=ElementType.A8)
    rig.emit(Op.RMS_NORM, [source], [rig.buffer(32)], i=[32, 1, F32_TYPE], f=[1e-5])


def emit_short_vector(rig: PlanRig) -> None:
    vectors = [rig.vector(np.ones(7))]
    rig.emit(Op.RMS_NORM, [rig.buffer(8)], [rig.buffer(8)], vectors=vectors, i=[8, 1, F32_TYPE])


def emit_missing_vector(rig: PlanRig) -> None:
    rig.emit(Op.ROPE, [rig.buffer(8)], vectors=[5], i=[1, 8, 8], f=[1.0])


def emit_odd_rotation(rig: PlanRig) -> None:
    rig.emit(Op.ROPE, [rig.buffer(8)], vectors=[rig.vector(np.ones(4))], i=[1, 8, 7], f=[1.0])


def emit_missing_weight(rig: PlanRig) -> None:
    rig.emit(Op.EMBED, outs=[rig.buffer(8)], weights=[3])


def emit_wrong_width_of_weight(rig: PlanRig) -> None:
    rig.emit(Op.LINEAR, [rig.buffer(16)], [rig.buffer(8)], weights=[add_weight(rig, 8, 32)])


def emit_unprepared_for_int8(rig: PlanRig) -> None:
    weight = add_weight(rig, 8, 32, GGMLType.Q8_0)
    rig.emit(Op.LINEAR, [rig.buffer(32)], [rig.buffer(8)], weights=[weight])


def emit_linear_without_weight(rig: PlanRig) -> None:
    rig.emit(Op.LINEAR, [rig.buffer(32)], [rig.buffer(8)])


def emit_residual_missing(rig: PlanRig) -> None:
    weight = add_weight(rig, 8, 32)
    rig.emit(Op.LINEAR, [rig.buffer(32)], [rig.buffer(8)], weights=[weight], i=[1])


def emit_unknown_function(rig: PlanRig) -> None:
    rig.emit(Op.ACT, [rig.buffer(8)], [rig.buffer(8)], i=[4])


def emit_heads_that_do_not_divide(rig: PlanRig) -> None:
    layer = rig.kv_layer(KVLayer(0, 2, 8, 8))
    rig.emit(Op.ATTENTION, [rig.buffer(24)], [rig.buffer(24)], i=[3, layer, 0, F32_TYPE], f=[1.0])


def emit_missing_layer(rig: PlanRig) -> None:
    rig.emit(Op.KV_WRITE, [rig.buffer(16), rig.buffer(16)], i=[0])


def emit_bad_cap(rig: PlanRig) -> None:
    rig.emit(Op.SOFT_CAP, [rig.buffer(8)], f=[0.0])


def emit_sampling_in_forward(rig: PlanRig) -> None:
    rig.emit(Op.SAMPLE, [rig.buffer(16, Rows.L)], rows=Rows.L)


def emit_narrow_logits(rig: PlanRig) -> None:
    rig.emit_sample(Op.SAMPLE, [rig.buffer(15, Rows.L)])


def emit_buffer_of_both_segments(rig: PlanRig) -> None:
    x, y = rig.buffer(16, Rows.L), rig.buffer(16, Rows.L)
    rig.emit(Op.SCALE, [x], [y], rows=Rows.L, f=[1.0])
    rig.emit_sample(Op.SCALE, [x], [y], f=[1.0])


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        (
            emit_narrow_input,
            r"forward instruction 0 \(ADD\): in1: columns \[0, 8\) are outside its 4 columns",
        ),
        (emit_columns_outside, r"in0: columns \[4, 12\) are outside its 8 columns"),
        (emit_other_rows, "in0: rows must be 0, got 2"),
        (emit_prepared_input, "in0: dtype must be 0, got 100"),
        (emit_short_vector, "vec0: needs 8 values, has 7"),
        (emit_missing_vector, "vec0: 5 does not exist"),
        (emit_odd_rotation, "rotary dims must be even and within the head size 8, got 7"),
        (emit_missing_weight, "weight0: 3 does not exist"),
        (emit_wrong_width_of_weight, r"in0: columns \[0, 32\) are outside its 16"),
        (emit_unprepared_for_int8, "in0: dtype must be 100, got 0"),
        (emit_linear_without_weight, "has no weight"),
        (emit_residual_missing, "in1: buffer -1 does not exist"),
        (emit_unknown_function, "i0: unknown function 4"),
        (emit_heads_that_do_not_divide, "3 query heads are not a multiple of 2 KV heads"),
        (emit_missing_layer, "i0: kv layer 0 does not exist"),
        (emit_bad_cap, "f0 must be greater than 0"),
        (emit_sampling_in_forward, "belongs to the sample segment"),
        (emit_narrow_logits, r"sample instruction 0 \(SAMPLE\): in0: columns \[0, 16\)"),
        (emit_buffer_of_both_segments, "buffer 1 is written by both segments"),
    ],
)
def test_bad_instructions_are_refused(emit: Callable[[PlanRig], None], message: str) -> None:
    with plan_rig() as rig:
        emit(rig)
        with pytest.raises(StartupError, match=message):
            rig.build()


def raw_plan(
    buffer: OvBuffer, instruction: OvInstr, *, arena_bytes: int = 4096, max_tokens: int = 8
) -> tuple[int | None, str]:
    """A plan of one instruction, described by hand: its handle and the error."""
    library = load_library()
    description = OvPlanDesc(
        buffers=ctypes.addressof(buffer),
        forward=ctypes.addressof(instruction),
        num_buffers=1,
        num_forward=1,
        arena_bytes=arena_bytes,
        max_tokens=max_tokens,
        max_requests=4,
        logit_chunk=4,
    )
    pool = library.create_pool(1)
    handle: int | None = library.ov_plan_create(pool.handle, ctypes.byref(description))
    error = library.last_error()
    if handle:
        library.ov_plan_destroy(handle)
    pool.close()
    return handle, error


def scale_in_place() -> OvInstr:
    none = OvOperand(-1, 0)
    native = OvInstr(op=Op.SCALE, rows=Rows.T)
    for slots in (native.in_, native.out):
        for index in range(4):
            slots[index] = none if index else OvOperand(0, 0)
    for index in range(4):
        native.weight[index] = native.vec[index] = -1
    return native


@pytest.mark.parametrize(
    ("changes", "sizes", "message"),
    [
        ({}, {}, ""),
        ({"offset_bytes": 4096 - 7 * 64}, {}, "beyond the arena of 4096 bytes"),
        ({"offset_bytes": -64}, {}, "multiples of 64"),
        ({"offset_bytes": 4}, {}, "multiples of 64"),
        ({"stride_bytes": 64, "cols": 17}, {}, "stride is less than a row"),
        ({"dtype": 8}, {}, "dtype 8"),
        ({"rows": 9}, {}, "unknown rows 9"),
        ({}, {"max_tokens": 65}, "65 rows reach beyond the arena"),
        ({}, {"max_tokens": 0}, "max_tokens"),
    ],
)
def test_bad_places_are_refused(
    changes: dict[str, int], sizes: dict[str, int], message: str
) -> None:
    fields = {"offset_bytes": 0, "stride_bytes": 64, "dtype": 0, "rows": 0, "cols": 16} | changes
    handle, error = raw_plan(OvBuffer(**fields), scale_in_place(), **sizes)
    assert bool(handle) == (not message)
    assert message in error or not message


def test_an_unknown_operation_is_refused() -> None:
    instruction = scale_in_place()
    instruction.op = 99
    buffer = OvBuffer(stride_bytes=64, cols=16)
    assert "unknown operation 99" in raw_plan(buffer, instruction)[1]


def test_a_buffer_that_does_not_exist_is_refused() -> None:
    instruction = scale_in_place()
    instruction.in_[0] = OvOperand(77, 0)
    buffer = OvBuffer(stride_bytes=64, cols=16)
    assert "(SCALE): in0: buffer 77 does not exist" in raw_plan(buffer, instruction)[1]


def break_tokens(step: StepArrays) -> None:
    step.num_tokens = 65


def break_requests(step: StepArrays) -> None:
    step.num_requests = 65


def break_ids(step: StepArrays) -> None:
    step.input_ids[1] = 20


def break_logit_rows(step: StepArrays) -> None:
    step.num_logits, step.logit_rows[0] = 1, 2


def break_lengths(step: StepArrays) -> None:
    step.seq_lens[0] = 1


def break_tables(step: StepArrays) -> None:
    step.seq_lens[0] = 17


def break_query_start(step: StepArrays) -> None:
    step.query_start[1] = 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (break_tokens, "num_tokens is 65, the plan takes at most 64"),
        (break_requests, "num_requests is 65"),
        (break_ids, "token 1 has id 20, outside the vocabulary of 20"),
        (break_logit_rows, r"logit_rows\[0\] is 2, outside the 2 tokens"),
        (break_lengths, "request 0 has 2 tokens in the step, length 1"),
        (break_tables, "length 17 and a table of 1 blocks"),
        (break_query_start, "query_start must run from 0 to num_tokens 2"),
    ],
)
def test_steps_that_would_reach_outside_are_refused(
    damage: Callable[[StepArrays], None], message: str
) -> None:
    with plan_rig() as rig:
        x = rig.buffer(8)
        rig.emit(Op.EMBED, outs=[x], weights=[add_weight(rig, 20, 8)], f=[1.0])
        rig.emit(Op.KV_WRITE, [x, x], i=[rig.kv_layer(KVLayer(0, 1, 8, 8))])
        plan = rig.build(num_blocks=2)
        step = rig.step(2)
        assert plan.forward(step)
        damage(step)
        with pytest.raises(EngineError, match=message):
            plan.forward(step)


def test_looking_at_a_buffer_stays_inside_the_arena() -> None:
    with plan_rig(max_tokens=8) as rig:
        x = rig.buffer(16)
        rig.emit(Op.SCALE, [x], [x], f=[2.0])
        plan = rig.build()
        with pytest.raises(EngineError, match="fewer than 9 rows"):
            plan.read(x.buffer, 9)
        with pytest.raises(EngineError, match="fewer than 9 rows"):
            plan.write(x.buffer, normal(9, 16))


# ---- segments


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("num_logits", [1, 31, 32, 33, 75])
def test_logit_rows_stream_through_the_head_in_chunks(isa: str, num_logits: int) -> None:
    vocab_size, hidden = 50, 64
    with plan_rig(isa, 2, max_tokens=80, vocab_size=vocab_size) as rig:
        x, rows = rig.buffer(hidden), rig.buffer(hidden, Rows.L)
        logits = rig.buffer(vocab_size, Rows.L, is_chunked=True)
        rig.emit(Op.GATHER, [x], [rows], rows=Rows.L)
        rig.emit_sample(Op.LM_HEAD, [rows], [logits])
        rig.program.sample[0].weights.append(add_weight(rig, vocab_size, hidden))
        rig.emit_sample(Op.SOFT_CAP, [logits], f=[5.0])
        rig.emit_sample(Op.PENALIZE, [logits])
        rig.emit_sample(Op.SAMPLE, [logits])
        plan = rig.build()
        values = normal(80, hidden)
        plan.write(x.buffer, values)
        step = rig.step(80, num_logits=num_logits)
        step.logit_rows[:num_logits] = np.random.default_rng(1).permutation(80)[:num_logits]
        assert plan.forward(step)
        sampling = SamplingArrays(num_logits)
        sampling.uses_bias = True
        sampling.bias_offsets[:] = [*range(num_logits), num_logits]
        sampling.bias_ids = np.full(num_logits, 3, np.int32)
        sampling.bias_values = np.full(num_logits, -np.inf, np.float32)
        sampling.bias_values[-1] = 100
        output = _sample(rig, step, sampling)
        weight = rig.weights[0].dequantize(0, vocab_size)
    expected = values[step.logit_rows[:num_logits]] @ weight.T
    expected[:-1, 3] = -np.inf
    best = expected.argmax(1)
    best[-1] = 3
    np.testing.assert_array_equal(output, best)


def _sample(rig: PlanRig, step: StepArrays, sampling: SamplingArrays) -> list[int]:
    output = SampleOutputArrays(step.num_logits)
    assert rig.plan is not None
    assert rig.plan.sample(step, sampling, output)
    return output.sampled.tolist()


def test_tokens_can_come_from_what_was_sampled_last() -> None:
    with plan_rig() as rig:
        x = rig.buffer(8)
        rig.emit(Op.EMBED, outs=[x], weights=[add_weight(rig, 20, 8)], f=[1.0])
        plan = rig.build()
        table = rig.weights[0].dequantize(0, 20)
        ids = np.array([4, -1, 6], np.int32)
        rows = np.array([-1, 2, 0], np.int32)
        last = np.array([11, 12, 13], np.int32)
        step = OvStep(
            version=ABI_VERSION,
            bytes=ctypes.sizeof(OvStep),
            num_tokens=3,
            input_ids=ids.ctypes.data,
            input_rows=rows.ctypes.data,
            last_tokens=last.ctypes.data,
        )
        assert rig.library.ov_plan_forward(plan._handle, ctypes.byref(step)) == 0
        np.testing.assert_array_equal(plan.read(x.buffer, 3), table[[4, 13, 11]])
        step.version = 99
        assert rig.library.ov_plan_forward(plan._handle, ctypes.byref(step)) < 0
        assert "version 99" in rig.library.last_error()


def test_an_empty_step_does_nothing() -> None:
    with plan_rig() as rig:
        x = rig.buffer(8)
        rig.emit(Op.SCALE, [x], [x], f=[2.0])
        plan = rig.build()
        plan.write(x.buffer, normal(2, 8))
        assert plan.forward(rig.step(0))
        np.testing.assert_array_equal(plan.read(x.buffer, 2), normal(2, 8))


# ---- abort and timers


def busy_plan(rig: PlanRig, num_instructions: int) -> StepArrays:
    x = rig.buffer(4096)
    for _ in range(num_instructions):
        rig.emit(Op.ACT, [x], [x], i=[Activation.GELU])
    rig.build()
    return rig.step(64)


def test_an_aborted_plan_runs_nothing_more() -> None:
    with plan_rig() as rig:
        step = busy_plan(rig, 3)
        plan = rig.plan
        assert plan is not None
        plan.enable_timers(True)
        plan.abort()
        assert plan.forward(step) is False
        assert [ns for _, ns in plan.timers()] == [0, 0, 0]


def test_abort_from_another_thread_ends_a_running_step() -> None:
    with plan_rig(num_threads=2) as rig:
        step = busy_plan(rig, 200)
        plan = rig.plan
        assert plan is not None
        has_begun, ends = threading.Event(), []

        def steps() -> None:
            while True:
                has_begun.set()
                if not plan.forward(step):
                    ends.append("aborted")
                    return

        thread = threading.Thread(target=steps)
        thread.start()
        assert has_begun.wait(20)
        plan.abort()
        thread.join(20)
        assert ends == ["aborted"]


def test_timers_tell_what_each_instruction_took() -> None:
    with plan_rig() as rig:
        step = busy_plan(rig, 2)
        plan = rig.plan
        assert plan is not None
        plan.forward(step)
        assert [ns for _, ns in plan.timers()] == [0, 0]
        plan.enable_timers(True)
        plan.forward(step)
        first = [ns for _, ns in plan.timers()]
        assert all(ns > 10_000 for ns in first)
        plan.forward(step)
        assert all(b > a for a, b in zip(first, (ns for _, ns in plan.timers()), strict=True))
        assert rig.library.ov_plan_timers(plan._handle, None, 5) < 0
        assert "has 2 instructions, asked for 5" in rig.library.last_error()
