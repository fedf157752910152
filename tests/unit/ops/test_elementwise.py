"""Native kernels between matrix products, against float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from octavo.errors import StartupError
from octavo.messages.kv_cache import DTYPE_BYTES
from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import Activation, KVLayer
from octavo.ops.library import available_isas
from octavo.ops.program import ElementType, Op, Operand, Rows
from tests.fakes.memory_checkpoint import random_tensor
from tests.fakes.plan_rig import F32, plan_rig

F64 = npt.NDArray[np.float64]
ISAS = available_isas()
WIDTHS = [1, 7, 16, 31, 64, 65, 576, 1000]
each_isa = pytest.mark.parametrize("isa", ISAS)


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> F32:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


erf = np.vectorize(math.erf, otypes=[np.float64])

ACTIVATIONS: dict[Activation, Callable[[F64], F64]] = {
    Activation.SILU: lambda x: x / (1 + np.exp(-x)),
    Activation.GELU: lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    Activation.GELU_TANH: lambda x: (
        0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    ),
    Activation.RELU: lambda x: np.maximum(x, 0),
}


def rms_norm(x: F64, weight: F64, eps: float, offset: float) -> F64:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * (weight + offset)


@each_isa
@pytest.mark.parametrize("cols", WIDTHS)
def test_point_wise_arithmetic(isa: str, cols: int) -> None:
    with plan_rig(isa) as rig:
        a, b = rig.buffer(cols), rig.buffer(cols)
        outs = [rig.buffer(cols) for _ in range(3)]
        rig.emit(Op.ADD, [a, b], [outs[0]])
        rig.emit(Op.MUL, [a, b], [outs[1]])
        rig.emit(Op.SCALE, [a], [outs[2]], f=[0.3])
        rig.build()
        x, y = normal(5, cols), normal(5, cols, seed=1)
        total, product, scaled = rig.run([(a, x), (b, y)], *outs)
    np.testing.assert_array_equal(total, x + y)
    np.testing.assert_array_equal(product, x * y)
    np.testing.assert_array_equal(scaled, x * np.float32(0.3))


@each_isa
@pytest.mark.parametrize("kind", list(Activation))
def test_activations_are_accurate_over_their_range(isa: str, kind: Activation) -> None:
    x = np.concatenate(
        [np.linspace(-100, 100, 4001), np.linspace(-3, 3, 6001), np.geomspace(1e-30, 1, 99), [0.0]]
    ).astype(np.float32)[None]
    with plan_rig(isa) as rig:
        source, out = rig.buffer(x.shape[1]), rig.buffer(x.shape[1])
        rig.emit(Op.ACT, [source], [out], i=[kind])
        rig.build()
        (got,) = rig.run([(source, x)], out)
    with np.errstate(over="ignore"):
        expected = ACTIVATIONS[kind](x.astype(np.float64))
    error = np.abs(got - expected) / np.maximum(np.abs(x), 1)
    assert error.max() <= 5e-7


@each_isa
def test_activations_pass_nan_on_and_survive_the_ends_of_the_range(isa: str) -> None:
    x = np.array([[np.nan, 3e38, -3e38, 200, -200]], np.float32)
    for kind in Activation:
        with plan_rig(isa) as rig:
            source, out = rig.buffer(5), rig.buffer(5)
            rig.emit(Op.ACT, [source], [out], i=[kind])
            rig.build()
            ((nan, *rest),) = rig.run([(source, x)], out)[0]
        assert np.isnan(nan)
        np.testing.assert_array_equal(rest, np.float32([3e38, 0, 200, 0]))


@each_isa
@pytest.mark.parametrize("dtype", [ElementType.F32, ElementType.BF16, ElementType.A8])
@pytest.mark.parametrize("cols", [96, 128, 200])
def test_gating_prepares_its_output_as_a_separate_step_would(
    isa: str, dtype: ElementType, cols: int
) -> None:
    with plan_rig(isa, 3) as rig:
        gate_up = rig.buffer(2 * cols)
        gate, up = gate_up, Operand(gate_up.buffer, cols)
        plain, fused, apart = rig.buffer(cols), rig.buffer(cols, dtype=dtype), rig.buffer(cols)
        rig.emit(Op.ACT_MUL, [gate, up], [plain], i=[Activation.SILU, 0, ElementType.F32])
        rig.emit(Op.ACT_MUL, [gate, up], [fused], i=[Activation.SILU, 0, dtype])
        if dtype != ElementType.F32:
            apart = rig.buffer(cols, dtype=dtype)
            rig.emit(Op.PREPARE, [plain], [apart], i=[dtype])
        else:
            rig.emit(Op.SCALE, [plain], [apart], f=[1.0])
        rig.build()
        x = normal(40, 2 * cols)
        value, prepared, expected = rig.run([(gate_up, x)], plain, fused, apart, num_generated=9)
    reference = ACTIVATIONS[Activation.SILU](x[:, :cols].astype(np.float64)) * x[:, cols:]
    np.testing.assert_allclose(value, reference, atol=2e-6)
    np.testing.assert_array_equal(prepared, expected)


@each_isa
@pytest.mark.parametrize("cols", WIDTHS)
def test_rms_norm(isa: str, cols: int) -> None:
    x, weight = normal(4, cols, scale=3), normal(cols, seed=1)
    with plan_rig(isa) as rig:
        source, out = rig.buffer(cols), rig.buffer(cols)
        i, f = [cols, 1, ElementType.F32], [1e-5, 1.0]
        rig.emit(Op.RMS_NORM, [source], [out], vectors=[rig.vector(weight)], i=i, f=f)
        rig.build()
        (got,) = rig.run([(source, x)], out)
    np.testing.assert_allclose(
        got, rms_norm(x.astype(np.float64), weight, 1e-5, 1.0), rtol=3e-6, atol=3e-6
    )


@each_isa
@pytest.mark.parametrize("cols", WIDTHS)
def test_layer_norm(isa: str, cols: int) -> None:
    x, weight, bias = normal(4, cols) + 5, normal(cols, seed=1), normal(cols, seed=2)
    with plan_rig(isa) as rig:
        source, out = rig.buffer(cols), rig.buffer(cols)
        vectors = [rig.vector(weight), rig.vector(bias)]
        i, f = [cols, 1, ElementType.F32], [1e-5, 0.0]
        rig.emit(Op.LAYER_NORM, [source], [out], vectors=vectors, i=i, f=f)
        rig.build()
        (got,) = rig.run([(source, x)], out)
    x64 = x.astype(np.float64)
    centred = x64 - x64.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weight + bias
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@each_isa
def test_rms_norm_of_each_head_by_itself_inside_a_wider_buffer(isa: str) -> None:
    heads, dim, first = 3, 20, 8
    x, weight = normal(6, first + heads * dim), normal(dim, seed=1)
    with plan_rig(isa) as rig:
        source, out = rig.buffer(x.shape[1]), rig.buffer(heads * dim)
        rig.emit(
            Op.RMS_NORM,
            [Operand(source.buffer, first)],
            [out],
            vectors=[rig.vector(weight)],
            i=[dim, heads, ElementType.F32],
            f=[1e-6, 0.0],
        )
        rig.build()
        (got,) = rig.run([(source, x)], out)
    split = x[:, first:].reshape(6, heads, dim).astype(np.float64)
    expected = rms_norm(split, weight, 1e-6, 0.0).reshape(6, -1)
    np.testing.assert_allclose(got, expected, rtol=3e-6, atol=3e-6)


@each_isa
@pytest.mark.parametrize("dtype", [ElementType.BF16, ElementType.A8])
@pytest.mark.parametrize("norm", [Op.RMS_NORM, Op.LAYER_NORM])
@pytest.mark.parametrize(("cols", "heads"), [(96, 1), (40, 1), (544, 1), (32, 3), (16, 6)])
@pytest.mark.parametrize("num_rows", [1, 9, 64])
def test_a_norm_that_adds_and_prepares_has_the_bits_of_separate_steps(
    isa: str, dtype: ElementType, norm: Op, cols: int, heads: int, num_rows: int
) -> None:
    dim, cols = cols, cols * heads
    with plan_rig(isa) as rig:
        x, y = rig.buffer(cols), rig.buffer(cols)
        total, normed, prepared = (
            rig.buffer(cols),
            rig.buffer(cols),
            rig.buffer(cols, dtype=dtype),
        )
        fused_total, fused = rig.buffer(cols), rig.buffer(cols, dtype=dtype)
        weight = normal(dim, seed=3)
        weight[0] = 1e-39  # results are subnormal
        vectors, f = [rig.vector(weight), None], [1e-5, 0.0]
        rig.emit(Op.ADD, [x, y], [total])
        rig.emit(norm, [total], [normed], vectors=vectors, i=[dim, heads, ElementType.F32], f=f)
        rig.emit(Op.PREPARE, [normed], [prepared], i=[dtype])
        rig.emit(norm, [x, y], [fused, fused_total], vectors=vectors, i=[dim, heads, dtype], f=f)
        rig.build()
        results = rig.run(
            [(x, normal(num_rows, cols)), (y, normal(num_rows, cols, seed=1))],
            total,
            fused_total,
            prepared,
            fused,
            num_generated=num_rows // 2,
        )
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[2], results[3])


@each_isa
def test_soft_cap_bounds_its_input(isa: str) -> None:
    x = np.linspace(-500, 500, 1001, dtype=np.float32)[None]
    with plan_rig(isa) as rig:
        source = rig.buffer(x.shape[1])
        rig.emit(Op.SOFT_CAP, [source], f=[30.0])
        rig.build()
        (got,) = rig.run([(source, x)], source)
    np.testing.assert_allclose(got, 30 * np.tanh(x.astype(np.float64) / 30), atol=1e-5)
    assert np.abs(got).max() <= 30


@each_isa
def test_soft_cap_keeps_small_values_relatively_exact(isa: str) -> None:
    x = np.geomspace(1e-20, 10, 500, dtype=np.float32)[None]
    with plan_rig(isa) as rig:
        source = rig.buffer(x.shape[1])
        rig.emit(Op.SOFT_CAP, [source], f=[30.0])
        rig.build()
        (got,) = rig.run([(source, x)], source)
    np.testing.assert_allclose(got, 30 * np.tanh(x.astype(np.float64) / 30), rtol=5e-7)


def rotate(x: F32, positions: npt.NDArray[np.int64], inv_freq: F32, heads: int, dim: int) -> F64:
    half = len(inv_freq)
    angle = (positions[:, None].astype(np.float32) * inv_freq[None]).astype(np.float64)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    y = x.reshape(len(x), heads, dim).astype(np.float64).copy()
    a, b = y[..., :half].copy(), y[..., half : 2 * half].copy()
    y[..., :half], y[..., half : 2 * half] = a * cos - b * sin, b * cos + a * sin
    return y.reshape(len(x), -1)


@each_isa
@pytest.mark.parametrize(("dim", "rotary"), [(64, 64), (128, 128), (80, 32), (24, 10), (256, 256)])
def test_rope_at_long_positions(isa: str, dim: int, rotary: int) -> None:
    heads = 3
    inv_freq = (10000.0 ** (-np.arange(0, rotary, 2) / rotary)).astype(np.float32)
    positions = np.array([0, 1, 2, 511, 8191, 32767, 100003, 131071])
    x = normal(len(positions), heads * dim)
    with plan_rig(isa) as rig:
        source = rig.buffer(heads * dim)
        rig.emit(Op.ROPE, [source], vectors=[rig.vector(inv_freq)], i=[heads, dim, rotary], f=[1.0])
        plan = rig.build()
        plan.write(source.buffer, x)
        step = rig.step(len(positions))
        step.positions[: len(positions)] = positions
        plan.forward(step)
        got = plan.read(source.buffer, len(positions))
    np.testing.assert_allclose(got, rotate(x, positions, inv_freq, heads, dim), atol=1.2e-6)


@each_isa
def test_rope_scales_cos_and_sin(isa: str) -> None:
    inv_freq = np.array([1.0, 0.1], np.float32)
    x = normal(4, 4)
    with plan_rig(isa) as rig:
        source = rig.buffer(4)
        rig.emit(Op.ROPE, [source], vectors=[rig.vector(inv_freq)], i=[1, 4, 4], f=[1.5])
        rig.build()
        (got,) = rig.run([(source, x)], source)
    expected = 1.5 * rotate(x, np.arange(4), inv_freq, 1, 4)
    np.testing.assert_allclose(got, expected, atol=1e-6)


@each_isa
@pytest.mark.parametrize("kv_dtype", DTYPE_BYTES)
def test_rope_with_cache_write_has_the_bits_of_separate_steps(isa: str, kv_dtype: str) -> None:
    heads, kv_heads, dim, num_tokens = 4, 2, 32, 19
    inv_freq = (10000.0 ** (-np.arange(0, dim, 2) / dim)).astype(np.float32)
    inputs = [normal(num_tokens, n * dim, seed=n) for n in (heads, kv_heads, kv_heads)]
    results = []
    for is_fused in (False, True):
        with plan_rig(isa, 2, kv_dtype=kv_dtype) as rig:
            q, k, v = (rig.buffer(n * dim) for n in (heads, kv_heads, kv_heads))
            out = rig.buffer(heads * dim)
            layer, vec = rig.kv_layer(KVLayer(0, kv_heads, dim, dim)), rig.vector(inv_freq)
            if is_fused:
                i = [heads, dim, dim, layer]
                rig.emit(Op.ROPE_KV, [q, k, v], vectors=[vec], i=i, f=[1.0])
            else:
                rig.emit(Op.ROPE, [q], vectors=[vec], i=[heads, dim, dim], f=[1.0])
                rig.emit(Op.ROPE, [k], vectors=[vec], i=[kv_heads, dim, dim], f=[1.0])
                rig.emit(Op.KV_WRITE, [k, v], i=[layer])
            rig.emit(Op.ATTENTION, [q], [out], i=[heads, layer, 0, ElementType.F32], f=[0.2, 0.0])
            plan = rig.build(num_blocks=3)
            for operand, values in zip((q, k, v), inputs, strict=True):
                plan.write(operand.buffer, values)
            step = rig.step(num_tokens, max_blocks=2)
            step.block_tables[0, 0] = [2, 1]
            step.slot_mapping[0, :num_tokens] = [
                [2, 1][t // 16] * 16 + t % 16 for t in range(num_tokens)
            ]
            plan.forward(step)
            results.append([plan.read(b.buffer, num_tokens) for b in (q, out)])
    for apart, fused in zip(*results, strict=True):
        np.testing.assert_array_equal(apart, fused)


@each_isa
@pytest.mark.parametrize("kind", [GGMLType.F32, GGMLType.BF16, GGMLType.Q8_0, GGMLType.Q4_1])
def test_embedding_rows_come_from_the_packed_weight(isa: str, kind: GGMLType) -> None:
    tensor = random_tensor("embedding", (40, 64), kind, np.random.default_rng(0))
    with plan_rig(isa, 2) as rig:
        rig.weights.append(rig.library.pack_weight(rig.pool, tensor, kind))
        out = rig.buffer(64)
        rig.emit(Op.EMBED, outs=[out], weights=[0], f=[2.0])
        plan = rig.build()
        step = rig.step(5)
        step.input_ids[:5] = [39, 0, 7, 7, 21]
        plan.forward(step)
        got = plan.read(out.buffer, 5)
        table = rig.weights[0].dequantize(0, 40)
    np.testing.assert_array_equal(got, 2 * table[[39, 0, 7, 7, 21]])


@each_isa
@pytest.mark.parametrize("dtype", [ElementType.F32, ElementType.BF16])
def test_gathered_rows_keep_their_bits(isa: str, dtype: ElementType) -> None:
    with plan_rig(isa) as rig:
        source = rig.buffer(40, dtype=dtype)
        out = rig.buffer(40, Rows.L, dtype)
        rig.emit(Op.GATHER, [source], [out], rows=Rows.L)
        plan = rig.build()
        plan.write(source.buffer, normal(6, 40))
        step = rig.step(6, num_logits=3)
        step.logit_rows[:3] = [5, 0, 5]
        plan.forward(step)
        before, after = plan.read(source.buffer, 6), plan.read(out.buffer, 3)
    np.testing.assert_array_equal(after, before[[5, 0, 5]])


def test_rows_whose_form_says_what_they_are_of_cannot_be_gathered() -> None:
    with plan_rig() as rig:
        source, out = rig.buffer(40, dtype=ElementType.A8), rig.buffer(40, Rows.L, ElementType.A8)
        rig.emit(Op.GATHER, [source], [out], rows=Rows.L)
        with pytest.raises(StartupError, match=r"GATHER.*rows of A8 have different forms"):
            rig.build()


@each_isa
def test_a_row_has_the_same_bits_alone_in_a_batch_and_with_any_number_of_threads(isa: str) -> None:
    cols = 576
    x = normal(50, cols)

    def run(rows: F32, num_threads: int) -> list[F32]:
        with plan_rig(isa, num_threads) as rig:
            source, normed, active = rig.buffer(cols), rig.buffer(cols), rig.buffer(cols)
            rig.emit(
                Op.RMS_NORM,
                [source],
                [normed],
                vectors=[rig.vector(normal(cols, seed=1))],
                i=[cols, 1, ElementType.F32],
                f=[1e-5, 0.0],
            )
            rig.emit(Op.ACT, [normed], [active], i=[Activation.GELU])
            rig.build()
            return rig.run([(source, rows)], normed, active)

    whole = run(x, 1)
    for num_threads in (2, 3):
        for got, expected in zip(run(x, num_threads), whole, strict=True):
            np.testing.assert_array_equal(got, expected)
    for got, expected in zip(run(x[17:18], 3), whole, strict=True):
        np.testing.assert_array_equal(got[0], expected[17])
