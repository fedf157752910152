"""Stored values to f32."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.ops.dequantize import bfloat16_to_float32, dequantize, float32_to_bfloat16
from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import StoredTensor


def test_q8_0_is_scale_times_integers() -> None:
    quants = np.arange(-16, 16, dtype=np.int8)
    raw = np.float16(0.5).tobytes() + quants.tobytes()
    values = dequantize(StoredTensor("w", GGMLType.Q8_0, (1, 32), memoryview(raw)))
    np.testing.assert_array_equal(values, quants[None].astype(np.float32) * 0.5)


def test_q4_1_has_low_nibbles_first_and_adds_the_minimum() -> None:
    nibbles = np.arange(16, dtype=np.uint8)
    raw = np.float16(2).tobytes() + np.float16(-1).tobytes() + (nibbles | (15 << 4)).tobytes()
    values = dequantize(StoredTensor("w", GGMLType.Q4_1, (32,), memoryview(raw)))
    np.testing.assert_array_equal(values[:16], np.arange(16) * 2.0 - 1)
    np.testing.assert_array_equal(values[16:], np.full(16, 29.0))


def test_rows_are_permuted_and_the_offset_is_added() -> None:
    stored = np.arange(6, dtype=np.float32).reshape(3, 2)
    tensor = StoredTensor(
        "w",
        GGMLType.F32,
        (3, 2),
        memoryview(stored.tobytes()),
        row_permutation=np.array([2, 0, 1], np.int32),
        value_offset=-1.0,
    )
    np.testing.assert_array_equal(dequantize(tensor), stored[[2, 0, 1]] - 1)


def test_data_of_the_wrong_length_names_the_tensor() -> None:
    with pytest.raises(ValueError, match="tensor blk"):
        dequantize(StoredTensor("blk.0", GGMLType.F32, (3, 2), memoryview(bytes(20))))


def test_bfloat16_rounds_ties_to_even_and_keeps_nan() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x7F800000], np.uint32).view(np.float32)
    rounded = float32_to_bfloat16(np.append(bits, np.float32(np.nan)))
    assert [hex(b) for b in rounded] == ["0x3f80", "0x3f82", "0x7f80", "0x7fc0"]
    np.testing.assert_array_equal(
        bfloat16_to_float32(rounded[:3]), np.array([1.0, 1.015625, np.inf], np.float32)
    )
