"""Stored values to f32 in numpy: the plain statement of every GGUF block type we read.

Used where speed does not matter: by `octavo/ops/torch.py` at load, and in tests. The native library
has its own vectorised version. Source of the layouts: ggml's `ggml-quants.c` and the GGUF
specification.

Runs in: workers, tests. Knows nothing of: files, weights' names, devices.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from octavo.ops.ggml_type import BLOCK_SHAPE, GGMLType
from octavo.ops.interface import StoredTensor

FloatArray = npt.NDArray[np.float32]
ByteArray = npt.NDArray[np.uint8]


def dequantize(tensor: StoredTensor) -> FloatArray:
    """The values the model sees, f32 of `tensor.shape`: rows permuted, offset added.

    Raises:
        ValueError: the data is shorter or longer than the shape says.
    """
    count = int(np.prod(tensor.shape, dtype=np.int64))
    elements, block_bytes = BLOCK_SHAPE[tensor.type]
    raw = np.frombuffer(tensor.data, np.uint8)
    if count % elements or raw.size != count // elements * block_bytes:
        raise ValueError(
            f"tensor {tensor.name}: {raw.size} bytes do not hold {tensor.shape} {tensor.type.name}"
        )
    values = _DECODERS[tensor.type](raw.reshape(-1, block_bytes)).reshape(tensor.shape)
    if tensor.row_permutation is not None:
        values = values[tensor.row_permutation]
    if tensor.value_offset:
        values = values + np.float32(tensor.value_offset)
    return np.require(values, np.float32, ["C", "W"])


def bfloat16_to_float32(bits: npt.NDArray[np.uint16]) -> FloatArray:
    """bf16 bit patterns to f32, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def float32_to_bfloat16(values: FloatArray) -> npt.NDArray[np.uint16]:
    """f32 to bf16 bit patterns, ties to even (NaN stays NaN)."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def _f16(columns: ByteArray) -> FloatArray:
    """Two bytes per block to [blocks, 1] f32."""
    return np.ascontiguousarray(columns).view(np.float16).astype(np.float32)


def _nibbles(qs: ByteArray) -> npt.NDArray[np.int32]:
    """[blocks, n] bytes to [blocks, 2n]: all low nibbles, then all high ones."""
    return np.concatenate((qs & 0xF, qs >> 4), axis=1).astype(np.int32)


def _fifth_bits(qh: ByteArray) -> npt.NDArray[np.int32]:
    """[blocks, 4] bytes to [blocks, 32]: bit i belongs to element i."""
    return np.unpackbits(qh, axis=1, bitorder="little").astype(np.int32)


def _f32(blocks: ByteArray) -> FloatArray:
    return np.ascontiguousarray(blocks).view(np.float32)


def _bf16(blocks: ByteArray) -> FloatArray:
    return bfloat16_to_float32(np.ascontiguousarray(blocks).view(np.uint16))


def _q4_0(blocks: ByteArray) -> FloatArray:
    return _f16(blocks[:, :2]) * (_nibbles(blocks[:, 2:]) - 8).astype(np.float32)


def _q4_1(blocks: ByteArray) -> FloatArray:
    scale, minimum = _f16(blocks[:, :2]), _f16(blocks[:, 2:4])
    return scale * _nibbles(blocks[:, 4:]).astype(np.float32) + minimum


def _q5_0(blocks: ByteArray) -> FloatArray:
    q = _nibbles(blocks[:, 6:]) | (_fifth_bits(blocks[:, 2:6]) << 4)
    return _f16(blocks[:, :2]) * (q - 16).astype(np.float32)


def _q5_1(blocks: ByteArray) -> FloatArray:
    scale, minimum = _f16(blocks[:, :2]), _f16(blocks[:, 2:4])
    q = _nibbles(blocks[:, 8:]) | (_fifth_bits(blocks[:, 4:8]) << 4)
    return scale * q.astype(np.float32) + minimum


def _q8_0(blocks: ByteArray) -> FloatArray:
    q = np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32)
    return _f16(blocks[:, :2]) * q


def _k_scales(packed: ByteArray) -> tuple[FloatArray, FloatArray]:
    """12 bytes of eight 6-bit scales and eight 6-bit minima to two [blocks, 8, 1]."""
    low, middle, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate((low & 0x3F, (high & 0xF) | ((low >> 2) & 0x30)), axis=1)
    minima = np.concatenate((middle & 0x3F, (high >> 4) | ((middle >> 2) & 0x30)), axis=1)
    return scales.astype(np.float32)[:, :, None], minima.astype(np.float32)[:, :, None]


def _k_nibbles(qs: ByteArray) -> npt.NDArray[np.int32]:
    """[blocks, 128] bytes to [blocks, 8, 32]: each 32 bytes hold two sub-blocks."""
    groups = qs.reshape(-1, 4, 1, 32)
    return np.concatenate((groups & 0xF, groups >> 4), axis=2).reshape(-1, 8, 32).astype(np.int32)


def _q4_k(blocks: ByteArray) -> FloatArray:
    scale, minimum = _f16(blocks[:, 0:2])[:, :, None], _f16(blocks[:, 2:4])[:, :, None]
    scales, minima = _k_scales(blocks[:, 4:16])
    q = _k_nibbles(blocks[:, 16:]).astype(np.float32)
    return scale * scales * q - minimum * minima


def _q5_k(blocks: ByteArray) -> FloatArray:
    scale, minimum = _f16(blocks[:, 0:2])[:, :, None], _f16(blocks[:, 2:4])[:, :, None]
    scales, minima = _k_scales(blocks[:, 4:16])
    shifts = np.arange(8, dtype=np.uint8)[None, :, None]
    high = ((blocks[:, None, 16:48] >> shifts) & 1).astype(np.int32)  # [blocks, 8, 32]
    q = (_k_nibbles(blocks[:, 48:]) | (high << 4)).astype(np.float32)
    return scale * scales * q - minimum * minima


def _q6_k(blocks: ByteArray) -> FloatArray:
    low = blocks[:, :128].reshape(-1, 2, 1, 64)
    low = np.concatenate((low & 0xF, low >> 4), axis=2).reshape(-1, 2, 4, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[None, None, :, None]
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 3
    q = (low | (high << 4)).astype(np.float32).reshape(-1, 16, 16) - np.float32(32)
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32)
    scale = _f16(blocks[:, 208:210])
    return (scale * scales)[:, :, None] * q


_DECODERS: dict[GGMLType, Callable[[ByteArray], FloatArray]] = {
    GGMLType.F32: _f32,
    GGMLType.F16: _f16,
    GGMLType.BF16: _bf16,
    GGMLType.Q4_0: _q4_0,
    GGMLType.Q4_1: _q4_1,
    GGMLType.Q5_0: _q5_0,
    GGMLType.Q5_1: _q5_1,
    GGMLType.Q8_0: _q8_0,
    GGMLType.Q4_K: _q4_k,
    GGMLType.Q5_K: _q5_k,
    GGMLType.Q6_K: _q6_k,
}
