"""Activations as linears read them: int8 groups with their scales and sums, rotated ones, bf16."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from octavo.ops.ggml_type import BLOCK_SHAPE, GGMLType
from octavo.ops.interface import StoredTensor
from octavo.ops.library import available_isas, load_library
from octavo.ops.program import ElementType, Op
from tests.fakes.plan_rig import F32, plan_rig
from tests.fakes.rotated_int8 import (
    largest_of_groups,
    rotated,
    rotated_back,
    rotated_int8,
    spread,
)

each_isa = pytest.mark.parametrize("isa", available_isas())
#: whole groups 0 to 48, of which kernels take 16, 8, 4, 2 or 1 at once, and a part of one
WIDTHS = [1, 31, 32, 33, 64, 96, 160, 480, 511, 512, 513, 544, 576, 1000, 1024, 1536]


def prepared(isa: str, dtype: ElementType, x: F32, *, num_generated: int | None = None) -> F32:
    with plan_rig(isa) as rig:
        source, out = rig.buffer(x.shape[1]), rig.buffer(x.shape[1], dtype=dtype)
        rig.emit(Op.PREPARE, [source], [out], i=[dtype])
        rig.build()
        (got,) = rig.run([(source, x)], out, num_generated=num_generated)
    return got


def groups_of(x: F32) -> tuple[F32, F32]:
    """Integers [rows, groups, 32] and scales [rows, groups] of finite rows."""
    rows, cols = x.shape
    padded = np.zeros((rows, -(-cols // 32) * 32), np.float32)
    padded[:, :cols] = x
    groups = padded.reshape(rows, -1, 32)
    amax = np.abs(groups).max(-1)
    is_zero = amax < np.float32(1e-36)
    factor = np.where(is_zero, 0, np.float32(127) / np.where(is_zero, 1, amax)).astype(np.float32)
    scale = np.where(is_zero, 0, amax / np.float32(127)).astype(np.float32)
    return np.rint(groups * factor[..., None]), scale


def varied(cols: int) -> F32:
    """Rows of many magnitudes with groups of zeros and of numbers that count as zero."""
    rng = np.random.default_rng(cols)
    x = rng.standard_normal((8, cols)) * 10.0 ** rng.integers(-30, 30, (8, cols))
    x[1] = rng.standard_normal(cols)
    x[2, : cols // 2] = 0
    x[3, cols // 2 :] = 1e-37
    x[4] = 0
    x[5] = -1e-36
    return x.astype(np.float32)


@each_isa
@pytest.mark.parametrize("cols", WIDTHS)
def test_each_group_of_32_has_its_own_scale(isa: str, cols: int) -> None:
    x = varied(cols)
    integers, scale = groups_of(x)
    expected = (integers * scale[..., None]).reshape(8, -1)[:, :cols]
    np.testing.assert_array_equal(prepared(isa, ElementType.A8, x), expected)


def times_blocks(isa: str, kind: GGMLType, first_one: int, x: F32) -> F32:
    """x times a weight of zero codes; one block of each row has the number 1 at a byte."""
    num_groups, block_bytes = x.shape[1] // 32, BLOCK_SHAPE[kind][1]
    blocks = np.zeros((num_groups, num_groups, block_bytes), np.uint8)
    one = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    blocks[np.arange(num_groups), np.arange(num_groups), first_one : first_one + 2] = one
    tensor = StoredTensor("sums", kind, (num_groups, x.shape[1]), memoryview(blocks.tobytes()))
    with plan_rig(isa) as rig:
        rig.weights.append(rig.library.pack_weight(rig.pool, tensor, kind))
        return rig.library.linear(rig.pool, rig.weights, x)[0]


@each_isa
@pytest.mark.parametrize("cols", [cols for cols in WIDTHS if cols % 32 == 0])
def test_sums_of_groups_are_those_of_their_integers(isa: str, cols: int) -> None:
    x = varied(cols)
    integers, scale = groups_of(x)
    sums = integers.sum(-1, dtype=np.float32)
    # a minimum of one reads the sums; zero codes of Q4_0 stand for -8
    np.testing.assert_array_equal(times_blocks(isa, GGMLType.Q4_1, 2, x), scale * sums)
    np.testing.assert_array_equal(times_blocks(isa, GGMLType.Q4_0, 0, x), scale * (-8 * sums))


@each_isa
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("cols", [33, 512, 576])
def test_what_is_no_number_stays_in_its_group(isa: str, bad: float, cols: int) -> None:
    x = np.tile(np.arange(1, cols + 1, dtype=np.float32), (cols // 32 + 1, 1))
    clean = prepared(isa, ElementType.A8, x)
    for row in range(len(x)):
        x[row, min(32 * row + 3 * row % 32, cols - 1)] = bad
    got = prepared(isa, ElementType.A8, x)
    np.testing.assert_array_equal(got, prepared("scalar", ElementType.A8, x))
    for row in range(len(x)):
        group = slice(32 * min(row, (cols - 1) // 32), 32 * min(row, (cols - 1) // 32) + 32)
        is_bad = np.zeros(cols, bool)
        is_bad[group] = True
        assert not np.isfinite(got[row][is_bad]).any()
        np.testing.assert_array_equal(got[row][~is_bad], clean[row][~is_bad])


def rotates_prompts(isa: str) -> bool:
    return load_library(isa).input_type(GGMLType.Q8_0, is_prompt=True) == ElementType.A8R


@each_isa
@pytest.mark.parametrize("cols", WIDTHS)
def test_rows_of_prompts_are_rotated_and_have_a_scale_per_64_where_the_level_does_so(
    isa: str, cols: int
) -> None:
    if not rotates_prompts(isa):
        return
    x = varied(cols)
    got = prepared(isa, ElementType.A8, x, num_generated=0)
    # read back in f32: relative to the largest of the values that are transformed together
    bound = 1e-6 * spread(largest_of_groups(rotated(x.astype(np.float64))), cols)
    assert (np.abs(got - rotated_back(rotated_int8(x), cols)) <= bound).all()


@each_isa
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("cols", [33, 512, 576, 608])
def test_what_is_no_number_stays_in_its_64_values_of_a_prompt(
    isa: str, bad: float, cols: int
) -> None:
    if not rotates_prompts(isa):
        return
    x = np.tile(np.arange(1, cols + 1, dtype=np.float32), (cols // 64 + 1, 1))
    clean = prepared(isa, ElementType.A8, x, num_generated=0)
    for row in range(len(x)):
        x[row, min(64 * row + 7 * row % 64, cols - 1)] = bad
    got = prepared(isa, ElementType.A8, x, num_generated=0)
    for row in range(len(x)):
        first = 64 * min(row, (cols - 1) // 64)
        is_bad = np.zeros(cols, bool)
        is_bad[first : first + 64] = True
        assert not np.isfinite(got[row][is_bad]).any()
        np.testing.assert_array_equal(got[row][~is_bad], clean[row][~is_bad])


def bf16_of(x: F32) -> F32:
    """To nearest even; NaN stays."""
    bits = x.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    values: npt.NDArray[np.float32] = rounded.astype(np.uint32).view(np.float32)
    return np.where(np.isnan(x), x, values)


@each_isa
@pytest.mark.parametrize("cols", WIDTHS)
def test_bf16_is_rounded_to_nearest_even_subnormal_numbers_too(isa: str, cols: int) -> None:
    rng = np.random.default_rng(cols)
    x = rng.integers(0, 2**32, (8, cols), dtype=np.uint32)
    x[1] = x[1] & 0xFFFF0000 | 0x8000  # ties
    x[2] = x[2] & 0x807FFFFF  # subnormal
    x[3:] = rng.standard_normal((5, cols)).astype(np.float32).view(np.uint32)
    x[4, cols // 2] = 0x00000123  # one of many
    x[5, cols - 1] = 0x807FFFFF  # rounds up to a normal number
    x[6, 0] = 0x80000000
    values = x.view(np.float32)
    got = prepared(isa, ElementType.BF16, values)
    expected = bf16_of(values)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))
