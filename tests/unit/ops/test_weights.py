"""Packed weights: what they hold and how many bytes they take."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from octavo.errors import StartupError
from octavo.ops.dequantize import dequantize
from octavo.ops.ggml_type import BLOCK_SHAPE, GGMLType
from octavo.ops.interface import StoredTensor
from octavo.ops.library import Library, NativeWeight, ThreadPool, available_isas, load_library
from tests.fakes.memory_checkpoint import float_tensor, random_tensor

KINDS = [kind for kind in GGMLType if kind != GGMLType.F16]


@pytest.fixture(params=available_isas())
def library(request: pytest.FixtureRequest) -> Library:
    return load_library(request.param)


@pytest.fixture
def pool(library: Library) -> Iterator[ThreadPool]:
    pool = library.create_pool(2)
    yield pool
    pool.close()


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    return rounded.astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "k"), [(16, 256), (1, 256), (40, 512), (100, 1536)])
def test_a_stored_weight_gives_its_values_back_exactly(
    library: Library, pool: ThreadPool, kind: GGMLType, n: int, k: int
) -> None:
    tensor = random_tensor("w", (n, k), kind, np.random.default_rng(n))
    weight = library.pack_weight(pool, tensor, kind)
    np.testing.assert_array_equal(weight.dequantize(0, n), dequantize(tensor))
    weight.close()


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if BLOCK_SHAPE[kind][0] <= 32 and kind != GGMLType.F32]
)
@pytest.mark.parametrize("k", [32, 64, 96, 576])
def test_rows_of_any_number_of_blocks_are_packed(
    library: Library, pool: ThreadPool, kind: GGMLType, k: int
) -> None:
    tensor = random_tensor("w", (17, k), kind, np.random.default_rng(k))
    weight = library.pack_weight(pool, tensor, kind)
    np.testing.assert_array_equal(weight.dequantize(0, 17), dequantize(tensor))
    weight.close()


@pytest.mark.parametrize("k", [1, 3, 100, 257])
@pytest.mark.parametrize("kind", [GGMLType.F32, GGMLType.BF16])
def test_float_weights_have_any_width(
    library: Library, pool: ThreadPool, kind: GGMLType, k: int
) -> None:
    tensor = random_tensor("w", (21, k), kind, np.random.default_rng(k))
    weight = library.pack_weight(pool, tensor, kind)
    np.testing.assert_array_equal(weight.dequantize(0, 21), dequantize(tensor))
    weight.close()


@pytest.mark.parametrize("source", list(GGMLType))
def test_every_type_can_be_kept_as_float32_or_bfloat16(
    library: Library, pool: ThreadPool, source: GGMLType
) -> None:
    tensor = random_tensor("w", (30, 256), source, np.random.default_rng(1))
    values = dequantize(tensor)
    for kind, expected in ((GGMLType.F32, values), (GGMLType.BF16, to_bfloat16(values))):
        weight = library.pack_weight(pool, tensor, kind)
        np.testing.assert_array_equal(weight.dequantize(0, 30), expected)
        weight.close()


@pytest.mark.parametrize("kind", list(GGMLType))
def test_every_finite_scale_is_read_exactly(
    library: Library, pool: ThreadPool, kind: GGMLType
) -> None:
    """Random bytes everywhere, f16 fields with denormals and the largest numbers."""
    elements, block_bytes = BLOCK_SHAPE[kind]
    rng = np.random.default_rng(7)
    raw = rng.integers(0, 256, (32 * 512 // elements, block_bytes), np.uint8)
    for at in {GGMLType.F32: [2], GGMLType.Q6_K: [208]}.get(kind, [0, 2]):
        if at + 1 < block_bytes:
            raw[:, at + 1] &= 0xBF
    tensor = StoredTensor("w", kind, (32, 512), memoryview(raw.tobytes()))
    weight = library.pack_weight(pool, tensor, GGMLType.F32 if kind == GGMLType.F16 else kind)
    np.testing.assert_array_equal(weight.dequantize(0, 32), dequantize(tensor))
    weight.close()


@pytest.mark.parametrize("kind", [GGMLType.Q4_1, GGMLType.Q6_K, GGMLType.BF16, GGMLType.F32])
def test_rows_are_permuted(library: Library, pool: ThreadPool, kind: GGMLType) -> None:
    permutation = np.random.default_rng(3).permutation(50).astype(np.int32)
    plain = random_tensor("w", (50, 256), kind, np.random.default_rng(2))
    tensor = StoredTensor("w", kind, plain.shape, plain.data, permutation)
    weight = library.pack_weight(pool, tensor, kind)
    np.testing.assert_array_equal(weight.dequantize(0, 50), dequantize(plain)[permutation])
    weight.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "k"), [(576, 1536), (1536, 576), (192, 576), (2048, 2048)])
def test_stored_bytes_exceed_the_files_by_two_percent_at_most(
    kind: GGMLType, n: int, k: int
) -> None:
    k = -(-k // BLOCK_SHAPE[kind][0]) * BLOCK_SHAPE[kind][0]
    library = load_library()
    pool = library.create_pool(2)
    tensor = random_tensor("w", (n, k), kind, np.random.default_rng(0))
    weight = library.pack_weight(pool, tensor, kind)
    assert len(tensor.data) <= weight.stored_bytes <= 1.02 * len(tensor.data)
    weight.close()
    pool.close()


def test_single_rows_are_those_of_the_whole(library: Library, pool: ThreadPool) -> None:
    tensor = random_tensor("w", (40, 256), GGMLType.Q5_K, np.random.default_rng(0))
    weight = library.pack_weight(pool, tensor, GGMLType.Q5_K)
    whole = weight.dequantize(0, 40)
    for row in (0, 15, 16, 39):
        np.testing.assert_array_equal(weight.dequantize(row, 1)[0], whole[row])
    assert weight.dequantize(40, 0).shape == (0, 256)
    for first, count in ((40, 1), (-1, 1), (39, 2)):
        with pytest.raises(ValueError, match="outside a weight of 40 rows"):
            weight.dequantize(first, count)
    weight.close()


def test_the_source_is_not_needed_after_packing(library: Library, pool: ThreadPool) -> None:
    data = bytearray(np.ones((16, 32), np.float32).tobytes())
    tensor = StoredTensor("w", GGMLType.F32, (16, 32), memoryview(data))
    weight = library.pack_weight(pool, tensor, GGMLType.F32)
    data[:] = bytes(len(data))
    np.testing.assert_array_equal(weight.dequantize(0, 16), np.ones((16, 32), np.float32))
    weight.close()


def test_memory_of_destroyed_weights_is_given_back(library: Library, pool: ThreadPool) -> None:
    """Weights share mappings: the last one out gives a mapping back."""
    tensor = float_tensor("w", np.ones((64, 64), np.float32))
    first = [library.pack_weight(pool, tensor, GGMLType.F32) for _ in range(8)]
    kept = first[3]
    for weight in first:
        if weight is not kept:
            weight.close()
    again = [library.pack_weight(pool, tensor, GGMLType.F32) for _ in range(8)]
    np.testing.assert_array_equal(kept.dequantize(0, 64), np.ones((64, 64), np.float32))
    large = library.pack_weight(
        pool, float_tensor("w", np.ones((4200, 4096), np.float32)), GGMLType.F32
    )  # more than a shared mapping
    before = resident_bytes()
    large.close()
    assert before - resident_bytes() > 60 * 2**20
    for weight in (kept, *again):
        weight.close()


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize(
    ("kind", "stored", "shape", "sentence"),
    [
        (GGMLType.Q4_0, GGMLType.Q4_1, (16, 32), "cannot be stored as Q4_1"),
        (GGMLType.F16, GGMLType.F16, (16, 32), "F16 weights are stored as BF16 or F32"),
        (GGMLType.Q4_K, GGMLType.Q4_K, (16, 128), "128 values cannot be of type Q4_K"),
        (GGMLType.Q8_0, GGMLType.F32, (16, 33), "33 values cannot be of type Q8_0"),
        (GGMLType.F32, GGMLType.F32, (0, 32), r"\[0, 32\]"),
    ],
)
def test_weights_that_cannot_be_packed_say_why(
    kind: GGMLType, stored: GGMLType, shape: tuple[int, int], sentence: str
) -> None:
    library = load_library()
    pool = library.create_pool(1)
    tensor = StoredTensor("blk.0.attn_q", kind, shape, memoryview(bytes(1 << 16)))
    with pytest.raises(
        StartupError, match=rf"tensor blk\.0\.attn_q cannot be loaded: .*{sentence}"
    ):
        NativeWeight(library, pool, tensor, stored)
    pool.close()


def test_a_permutation_outside_the_rows_is_refused() -> None:
    library = load_library()
    pool = library.create_pool(1)
    data = memoryview(bytes(4 * 4 * 32))
    wrong = np.array([0, 1, 2, 4], np.int32)
    tensor = StoredTensor("w", GGMLType.F32, (4, 32), data, wrong)
    with pytest.raises(StartupError, match="entry 3 is 4"):
        library.pack_weight(pool, tensor, GGMLType.F32)
    pool.close()
