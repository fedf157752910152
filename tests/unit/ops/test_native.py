"""Recording: which instructions the ops become, and what models must not do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from octavo.ops.backend import Network
from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import Activation, KVLayer, Tensor, Weight
from octavo.ops.library import Library
from octavo.ops.native import NativeBackend, NativeOps, input_type, stored_kind
from octavo.ops.plan import PlanOptions
from octavo.ops.program import ElementType, Op, Program, Rows
from tests.fakes.memory_checkpoint import random_tensor
from tests.fakes.worker_rig import native_backend

LAYER = KVLayer(0, 2, 8, 8)


@pytest.fixture
def backend() -> Iterator[NativeBackend]:
    backend = native_backend("auto", num_threads=1)
    yield backend
    backend.close()


@pytest.fixture
def ops(backend: NativeBackend) -> NativeOps:
    return backend.ops


def weight(ops: NativeOps, n: int, k: int, kind: GGMLType = GGMLType.Q8_0) -> Weight:
    return ops.pack_linear(random_tensor("w", (n, k), kind, np.random.default_rng(0)))


def record(
    ops: NativeOps, forward: Callable[[], Tensor], *, copies_before_overwrite: bool = False
) -> Program:
    network = Network(forward, lambda hidden: None, 32, [LAYER])
    return ops.record(network, copies_before_overwrite=copies_before_overwrite)


def names(program: Program) -> list[Op]:
    return [item.op for item in program.forward]


@pytest.mark.parametrize(
    ("stored", "dtype", "kept", "read"),
    [
        (GGMLType.Q4_1, "auto", GGMLType.Q4_1, ElementType.A8),
        (GGMLType.Q6_K, "auto", GGMLType.Q6_K, ElementType.A8),
        (GGMLType.F16, "auto", GGMLType.BF16, ElementType.BF16),
        (GGMLType.BF16, "auto", GGMLType.BF16, ElementType.BF16),
        (GGMLType.F32, "auto", GGMLType.F32, ElementType.F32),
        (GGMLType.Q4_1, "float32", GGMLType.F32, ElementType.F32),
        (GGMLType.F16, "float32", GGMLType.F32, ElementType.F32),
        (GGMLType.Q4_1, "bfloat16", GGMLType.BF16, ElementType.BF16),
        (GGMLType.F32, "bfloat16", GGMLType.BF16, ElementType.BF16),
    ],
)
def test_dtype_decides_what_is_kept_and_what_is_multiplied(
    stored: GGMLType, dtype: str, kept: GGMLType, read: ElementType
) -> None:
    assert stored_kind(stored, dtype) == kept
    assert input_type(kept) == read


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        (GGMLType.Q8_0, float(np.float32(640**0.5))),
        (GGMLType.F32, float(np.float32(640**0.5))),
        (GGMLType.BF16, 25.25),  # 25.298 has no place between 25.25 and 25.375
    ],
)
def test_a_bfloat16_embedding_is_scaled_by_a_bfloat16(
    ops: NativeOps, kind: GGMLType, factor: float
) -> None:
    embedding = weight(ops, 32, 64, kind)
    program = record(ops, lambda: ops.embed(embedding, scale=640**0.5))
    assert np.float32(program.forward[0].f[0]) == np.float32(factor)


def test_notes_say_how_weights_are_kept() -> None:
    options = PlanOptions(prompts_as_generated=True)
    backend = native_backend("auto", num_threads=1, options=options)
    for kind in (GGMLType.Q4_1, GGMLType.Q4_1, GGMLType.BF16):
        weight(backend.ops, 8, 32, kind)
    (note,) = backend.notes
    assert note.startswith(
        "weights are Q4_1 with int8 activations, BF16 with bfloat16 activations ("
    )
    assert "KV cache is bfloat16" in note
    assert note.endswith("kernels on 1 thread")
    backend.close()


def read_prompts_as(form: ElementType) -> Callable[..., int]:
    """`Library.input_type` of a level that reads prompts in a form of their own."""

    def read_as(library: Library, kind: GGMLType, *, is_prompt: bool) -> int:
        generated = input_type(kind)
        return form if is_prompt and generated == ElementType.A8 else generated

    return read_as


@pytest.mark.parametrize(
    ("form", "words"), [(ElementType.BF16, "bfloat16"), (ElementType.A8R, "rotated int8")]
)
@pytest.mark.parametrize(
    ("kind", "prompts_as_generated", "is_apart"),
    [
        (GGMLType.Q4_1, False, True),
        (GGMLType.Q4_1, True, False),
        (GGMLType.BF16, False, False),
        (GGMLType.F32, False, False),
    ],
)
def test_prompts_are_told_apart_if_a_weight_reads_them_in_another_form(
    monkeypatch: pytest.MonkeyPatch,
    kind: GGMLType,
    prompts_as_generated: bool,
    is_apart: bool,
    form: ElementType,
    words: str,
) -> None:
    monkeypatch.setattr(Library, "input_type", read_prompts_as(form))
    options = PlanOptions(prompts_as_generated=prompts_as_generated)
    backend = native_backend("auto", num_threads=1, options=options)
    weight(backend.ops, 8, 32, GGMLType.BF16)
    assert not backend.tells_prompts_apart
    weight(backend.ops, 8, 32, kind)
    assert backend.tells_prompts_apart is is_apart
    note = f"Q4_1 with int8 activations ({words} ones for prompts)"
    assert (note in backend.notes[0]) is is_apart
    backend.close()


def test_half_precision_weights_are_noted_once(backend: NativeBackend) -> None:
    weight(backend.ops, 8, 32, GGMLType.F16)
    weight(backend.ops, 8, 32, GGMLType.F16)
    assert [note for note in backend.notes if "float16 weights are kept as bfloat16" in note] == [
        backend.notes[1]
    ]


def test_an_input_is_prepared_once_for_all_its_linears(ops: NativeOps) -> None:
    w, head = weight(ops, 32, 32), weight(ops, 32, 32, GGMLType.BF16)

    def forward() -> Tensor:
        x = ops.embed(w)
        ops.linear(x, w)
        ops.linear(x, head)
        return ops.linear(x, w)

    assert names(record(ops, forward)) == [
        Op.EMBED,
        Op.PREPARE,
        Op.LINEAR,
        Op.PREPARE,
        Op.LINEAR,
        Op.LINEAR,
    ]


def test_f32_weights_read_activations_as_they_are(ops: NativeOps) -> None:
    w = weight(ops, 32, 32, GGMLType.F32)
    assert names(record(ops, lambda: ops.linear(ops.embed(w), w))) == [Op.EMBED, Op.LINEAR]


def test_the_head_begins_the_sample_segment_in_chunks(ops: NativeOps) -> None:
    w = weight(ops, 32, 32)

    def sample(hidden: Tensor) -> None:
        ops.sample(ops.penalize(ops.lm_head(hidden, w)))

    network = Network(lambda: ops.logit_rows(ops.select_rows(ops.embed(w))), sample, 32, [])
    program = ops.record(network, copies_before_overwrite=False)
    assert names(program) == [Op.EMBED, Op.GATHER, Op.GATHER, Op.PREPARE]
    assert [item.op for item in program.sample] == [Op.LM_HEAD, Op.PENALIZE, Op.SAMPLE]
    logits = program.buffers[program.sample[0].outs[0].buffer]
    assert (logits.rows, logits.is_chunked) == (Rows.L, True)


def rotate(ops: NativeOps, x: Tensor) -> Tensor:
    frequencies = ops.constant(np.ones(4, np.float32))
    return ops.rope(x, frequencies, num_heads=4, head_dim=8, rotary_dim=8)


def test_a_tensor_that_was_rotated_in_place_cannot_be_used_again(ops: NativeOps) -> None:
    w = weight(ops, 32, 32)

    def forward() -> Tensor:
        x = ops.embed(w)
        return ops.add(rotate(ops, x), x)

    with pytest.raises(AssertionError, match="overwritten this tensor"):
        record(ops, forward)


def test_other_columns_of_a_rotated_buffer_can_be_used(ops: NativeOps) -> None:
    w = weight(ops, 96, 32)

    def forward() -> Tensor:
        q, k, v = ops.split(ops.linear(ops.embed(w), w), [32, 32, 32])
        q, k = rotate(ops, q), rotate(ops, k)
        ops.kv_write(ops.add(q, k), ops.add(v, v), LAYER)
        return v

    assert names(record(ops, forward))[-3:] == [Op.ADD, Op.ADD, Op.KV_WRITE]


def test_copies_keep_every_value_when_asked(ops: NativeOps) -> None:
    w = weight(ops, 32, 32)
    program = record(ops, lambda: rotate(ops, ops.embed(w)), copies_before_overwrite=True)
    assert names(program) == [Op.EMBED, Op.SCALE, Op.ROPE]
    assert program.forward[2].ins[0] == program.forward[1].outs[0]


def test_shapes_that_do_not_fit_are_our_mistake(ops: NativeOps) -> None:
    w, wide = weight(ops, 32, 32), weight(ops, 32, 64)
    with pytest.raises(AssertionError, match="not as wide"):
        record(ops, lambda: ops.linear(ops.embed(w), wide))
    with pytest.raises(AssertionError, match="different shapes"):
        record(ops, lambda: ops.add(ops.embed(w), ops.embed(wide)))
    with pytest.raises(AssertionError, match="do not add up"):
        record(ops, lambda: ops.split(ops.embed(w), [16, 8])[0])


def test_a_program_can_be_recorded_again(ops: NativeOps) -> None:
    w = weight(ops, 32, 32)

    def forward() -> Tensor:
        x = ops.linear(ops.embed(w), w)
        return ops.act_mul(x, x, Activation.SILU)

    assert record(ops, forward) == record(ops, forward)


def test_stored_bytes_are_counted(backend: NativeBackend) -> None:
    before = backend.weight_bytes
    weight(backend.ops, 64, 256, GGMLType.F32)
    assert backend.weight_bytes - before == pytest.approx(64 * 256 * 4, rel=0.02)
