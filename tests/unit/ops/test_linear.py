"""Matrix products on packed weights: values against float64; a row has the same bits always."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import StoredTensor
from octavo.ops.library import Library, ThreadPool, available_isas, load_library
from octavo.ops.program import ElementType, Op
from tests.fakes.bfloat16 import rounded_to_bfloat16
from tests.fakes.int8_activations import quantize_activations, rounded_to_int8
from tests.fakes.memory_checkpoint import float_tensor, random_tensor
from tests.fakes.plan_rig import plan_rig

F32 = npt.NDArray[np.float32]
ISAS = available_isas()
KINDS = [kind for kind in GGMLType if kind != GGMLType.F16]
QUANTIZED = [kind for kind in KINDS if kind not in (GGMLType.F32, GGMLType.BF16)]
each_isa = pytest.mark.parametrize("isa", ISAS)
each_kind = pytest.mark.parametrize("kind", KINDS)


class Bench:
    """A library with pools of 1, 2 and 3 threads."""

    def __init__(self, isa: str) -> None:
        self.library: Library = load_library(isa)
        self.pools: list[ThreadPool] = [self.library.create_pool(n) for n in (1, 2, 3)]

    def close(self) -> None:
        for pool in self.pools:
            pool.close()


@pytest.fixture(scope="module")
def benches() -> Iterator[dict[str, Bench]]:
    benches = {isa: Bench(isa) for isa in ISAS}
    yield benches
    for bench in benches.values():
        bench.close()


def normal(*shape: int, seed: int = 0) -> F32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def as_read(x: F32, kind: GGMLType) -> npt.NDArray[np.float64]:
    """The activations as a weight of this kind reads them."""
    if kind == GGMLType.F32:
        return x.astype(np.float64)
    return rounded_to_bfloat16(x) if kind == GGMLType.BF16 else rounded_to_int8(x)


def assert_close(got: F32, x: F32, values: F32, kind: GGMLType) -> None:
    """|error| of f32 accumulation over k terms, relative to the sum of absolute products."""
    left, right = as_read(x, kind), values.astype(np.float64)
    bound = np.abs(left) @ np.abs(right).T
    error = np.abs(got - left @ right.T)
    assert (error <= 4e-6 * bound + 1e-30).all(), (error / bound).max()


@each_isa
@each_kind
@pytest.mark.parametrize(("n", "k"), [(1, 256), (40, 512), (100, 1536), (576, 256)])
def test_products_are_those_of_the_stored_values(
    benches: dict[str, Bench], isa: str, kind: GGMLType, n: int, k: int
) -> None:
    bench = benches[isa]
    tensor = random_tensor("w", (n, k), kind, np.random.default_rng(n + k))
    weight = bench.library.pack_weight(bench.pools[1], tensor, kind)
    x = normal(70, k)
    assert_close(
        bench.library.linear(bench.pools[1], [weight], x)[0], x, weight.dequantize(0, n), kind
    )
    weight.close()


@each_isa
@pytest.mark.parametrize("kind", [kind for kind in QUANTIZED if not kind.name.endswith("K")])
@pytest.mark.parametrize("k", [32, 64, 96, 576])
def test_any_number_of_groups(benches: dict[str, Bench], isa: str, kind: GGMLType, k: int) -> None:
    bench = benches[isa]
    tensor = random_tensor("w", (33, k), kind, np.random.default_rng(k))
    weight = bench.library.pack_weight(bench.pools[0], tensor, kind)
    for rows in (1, 13, 31):
        x = normal(rows, k)
        got = bench.library.linear(bench.pools[0], [weight], x)[0]
        assert_close(got, x, weight.dequantize(0, 33), kind)
    weight.close()


@each_isa
@pytest.mark.parametrize("kind", [GGMLType.F32, GGMLType.BF16])
@pytest.mark.parametrize("k", [1, 2, 3, 31, 77])
def test_float_weights_of_any_width(
    benches: dict[str, Bench], isa: str, kind: GGMLType, k: int
) -> None:
    bench = benches[isa]
    tensor = random_tensor("w", (19, k), kind, np.random.default_rng(k))
    weight = bench.library.pack_weight(bench.pools[0], tensor, kind)
    for rows in (1, 9):
        x = normal(rows, k)
        got = bench.library.linear(bench.pools[0], [weight], x)[0]
        assert_close(got, x, weight.dequantize(0, 19), kind)
    weight.close()


@each_isa
@each_kind
def test_a_row_has_the_same_bits_whatever_it_is_computed_with(
    benches: dict[str, Bench], isa: str, kind: GGMLType
) -> None:
    """Number of rows, place among them, threads, and the segments of the call."""
    bench = benches[isa]
    k = 512
    rng = np.random.default_rng(int(kind))
    # another kind with the same input beside it, and widths that are no multiple of a tile
    other = kind if kind in (GGMLType.F32, GGMLType.BF16) else GGMLType.Q6_K
    weights = [
        bench.library.pack_weight(bench.pools[1], random_tensor("w", (n, k), stored, rng), stored)
        for n, stored in ((200, kind), (48, other), (7, kind))
    ]
    x = normal(250, k)
    whole = bench.library.linear(bench.pools[1], weights, x)
    for rows in (*range(1, 15), 29, 32, 61, 70, 121, 250):
        first = (37 * rows) % (251 - rows)
        pool = bench.pools[rows % 3]
        chosen = [weights, weights[:1], weights[1:], weights[::-1]][rows % 4]
        parts = bench.library.linear(pool, chosen, x[first : first + rows])
        for weight, part in zip(chosen, parts, strict=True):
            expected = whole[weights.index(weight)][first : first + rows]
            np.testing.assert_array_equal(part.view(np.int32), expected.view(np.int32))
    for weight in weights:
        weight.close()


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_split_of_a_batch_gives_the_bits_of_the_whole(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    library = load_library(data.draw(st.sampled_from(ISAS)))
    is_prompt = data.draw(st.booleans())
    rows = data.draw(st.integers(1, 140 if is_prompt else 40))
    threads = data.draw(st.integers(1, 3))
    n = data.draw(st.integers(1, 70))
    pool = library.create_pool(threads)
    weight = library.pack_weight(
        pool, random_tensor("w", (n, 256), kind, np.random.default_rng(n)), kind
    )
    x = normal(rows, 256, seed=rows)
    whole = library.linear(pool, [weight], x, is_prompt=is_prompt)[0]
    cut = data.draw(st.integers(0, rows))
    parts = [
        library.linear(pool, [weight], part, is_prompt=is_prompt)[0]
        for part in (x[:cut], x[cut:])
        if len(part)
    ]
    np.testing.assert_array_equal(np.concatenate(parts).view(np.int32), whole.view(np.int32))
    weight.close()
    pool.close()


def extreme_tensor(kind: GGMLType, code_byte: int, n: int, k: int) -> StoredTensor:
    """All codes equal, scales one (K-types: the largest sub-scales), minimums zero."""
    plain = random_tensor("w", (n, k), kind, np.random.default_rng(0))
    raw = np.frombuffer(plain.data, np.uint8).copy().reshape(n * k // max(block_of(kind), 1), -1)
    raw[:] = code_byte
    one = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    if kind == GGMLType.Q6_K:
        raw[:, 192:208] = 127
        raw[:, 208:210] = one
    else:
        raw[:, 0:2] = one
        if kind in (GGMLType.Q4_1, GGMLType.Q5_1, GGMLType.Q4_K, GGMLType.Q5_K):
            raw[:, 2:4] = 0
        if kind in (GGMLType.Q4_K, GGMLType.Q5_K):
            raw[:, 4:16] = 0xFF
    return StoredTensor("w", kind, (n, k), memoryview(raw.tobytes()))


def block_of(kind: GGMLType) -> int:
    return 256 if kind.name.endswith("K") else 32


@each_isa
@pytest.mark.parametrize("kind", QUANTIZED)
@pytest.mark.parametrize("code_byte", [0x00, 0xFF, 0x80, 0x7F])
@pytest.mark.parametrize("signs", ["positive", "negative", "alternating", "pairs"])
def test_sums_of_extreme_codes_and_activations_do_not_saturate(
    benches: dict[str, Bench], isa: str, kind: GGMLType, code_byte: int, signs: str
) -> None:
    bench, k = benches[isa], 256
    weight = bench.library.pack_weight(bench.pools[0], extreme_tensor(kind, code_byte, 16, k), kind)
    pattern = {
        "positive": [1, 1, 1, 1],
        "negative": [-1, -1, -1, -1],
        "alternating": [1, -1, 1, -1],
        "pairs": [1, 1, -1, -1],
    }[signs]
    x = np.tile(np.array(pattern, np.float32), (32, k // 4)) * 127  # quantised to +-127 exactly
    for rows in (1, 8, 32):
        got = bench.library.linear(bench.pools[0], [weight], x[:rows])[0]
        expected = x[:rows].astype(np.float64) @ weight.dequantize(0, 16).astype(np.float64).T
        np.testing.assert_array_equal(got, expected.astype(np.float32))
    weight.close()


@each_isa
def test_activations_are_rounded_to_int8_per_group_as_documented(
    benches: dict[str, Bench], isa: str
) -> None:
    """An identity of int8 weights reads the quantised activations back."""
    bench, k = benches[isa], 96
    raw = np.zeros((k, k // 32, 34), np.uint8)
    raw[:, :, :2] = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    raw[np.arange(k), np.arange(k) // 32, 2 + np.arange(k) % 32] = 1
    tensor = StoredTensor("eye", GGMLType.Q8_0, (k, k), memoryview(raw.tobytes()))
    weight = bench.library.pack_weight(bench.pools[0], tensor, GGMLType.Q8_0)
    x = normal(9, k) * np.float32(10) ** np.arange(-4, 5, dtype=np.float32)[:, None]
    x[3, 32:64] = 0
    x[4, :32] = np.float32(1e-40)
    x[5, 64:] = np.arange(-16, 16) + np.float32(0.5)  # ties when the scale is one
    x[5, 64] = 127
    got = bench.library.linear(bench.pools[0], [weight], x)[0]
    integers, scale = quantize_activations(x)
    expected = integers.astype(np.float32) * np.repeat(scale, 32, axis=1)
    np.testing.assert_array_equal(got, expected)
    weight.close()


@each_isa
@each_kind
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rows", [9, 31])
def test_a_number_that_is_none_reaches_the_output_of_its_row_only(
    benches: dict[str, Bench], isa: str, kind: GGMLType, bad: float, rows: int
) -> None:
    bench, k = benches[isa], 256
    tensor = random_tensor("w", (16, k), kind, np.random.default_rng(5))
    weight = bench.library.pack_weight(bench.pools[0], tensor, kind)
    x = normal(rows, k)
    clean = bench.library.linear(bench.pools[0], [weight], x)[0]
    x[4, 77] = bad
    got = bench.library.linear(bench.pools[0], [weight], x)[0]
    assert not np.isfinite(got[4]).any()
    others = [row for row in range(rows) if row != 4]
    np.testing.assert_array_equal(got[others], clean[others])
    weight.close()


@each_isa
@pytest.mark.parametrize("kind", [GGMLType.F32, GGMLType.BF16, GGMLType.Q4_1, GGMLType.Q6_K])
@pytest.mark.parametrize("rows", [1, 11, 31, 61])
def test_bias_and_residual_are_added_after_the_product(isa: str, kind: GGMLType, rows: int) -> None:
    n, k = 37, 256
    bias, residual, x = normal(n, seed=1), normal(rows, n, seed=2), normal(rows, k)
    read = {GGMLType.F32: ElementType.F32, GGMLType.BF16: ElementType.BF16}
    dtype = read.get(kind, ElementType.A8)
    with plan_rig(isa, 2) as rig:
        tensor = random_tensor("w", (n, k), kind, np.random.default_rng(0))
        rig.weights.append(rig.library.pack_weight(rig.pool, tensor, kind))
        source, added = rig.buffer(k), rig.buffer(n)
        prepared, plain, full = rig.buffer(k, dtype=dtype), rig.buffer(n), rig.buffer(n)
        rig.emit(Op.PREPARE, [source], [prepared], i=[dtype])
        rig.emit(Op.LINEAR, [prepared], [plain], weights=[0])
        rig.emit(
            Op.LINEAR, [prepared, added], [full], weights=[0], vectors=[rig.vector(bias)], i=[1]
        )
        rig.emit(Op.LINEAR, [prepared, added], [added], weights=[0], i=[1])
        rig.build()
        product, got, in_place = rig.run([(source, x), (added, residual)], plain, full, added)
    np.testing.assert_array_equal(got, (product + bias) + residual)
    np.testing.assert_array_equal(in_place, product + residual)


def test_segments_must_share_the_input() -> None:
    library = load_library()
    pool = library.create_pool(1)
    rng = np.random.default_rng(0)
    narrow = library.pack_weight(pool, float_tensor("a", normal(16, 32)), GGMLType.F32)
    wide = library.pack_weight(pool, float_tensor("b", normal(16, 64)), GGMLType.F32)
    quantized = library.pack_weight(
        pool, random_tensor("c", (16, 32), GGMLType.Q8_0, rng), GGMLType.Q8_0
    )
    x = normal(2, 32)
    with pytest.raises(ValueError, match="input of 32 columns"):
        library.linear(pool, [wide], x)
    with pytest.raises(ValueError, match="segment 1 reads another input"):
        library.linear(pool, [narrow, quantized], x)
    with pytest.raises(ValueError, match="1 to 4 segments, got 5"):
        library.linear(pool, [narrow] * 5, x)
    assert library.linear(pool, [narrow], x[:0])[0].shape == (0, 16)
    for weight in (narrow, wide, quantized):
        weight.close()
    pool.close()
