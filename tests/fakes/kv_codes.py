"""What a KV cache holds of values, in numpy: the plain statement of csrc/src/kv_codec.h.

Knows nothing of: layouts, attention.
"""

from __future__ import annotations

import numpy as np

from octavo.ops.dequantize import bfloat16_to_float32, float32_to_bfloat16
from octavo.ops.step import Float32Array

LARGEST = {"int8": np.float32(127), "fp8_e4m3": np.float32(448)}


def stored_values(values: Float32Array, kv_dtype: str) -> Float32Array:
    """[..., head_dim] f32 as they come back from a cache of `kv_dtype`."""
    if kv_dtype == "float32":
        return values
    if kv_dtype == "bfloat16":
        return bfloat16_to_float32(float32_to_bfloat16(values)).reshape(values.shape)
    largest = LARGEST[kv_dtype]
    amax = np.abs(values).max(-1, keepdims=True)
    is_zero = amax < 1e-35
    factor = np.where(is_zero, 0, largest / np.where(is_zero, 1, amax)).astype(np.float32)
    scale = np.where(is_zero, 0, amax / largest).astype(np.float32)
    codes = values * factor
    codes = np.rint(codes) if kv_dtype == "int8" else e4m3(codes)
    return (codes * scale).astype(np.float32)


def e4m3(values: Float32Array) -> Float32Array:
    """Rounded to the nearest number with 4 exponent and 3 mantissa bits, at most 448."""
    magnitude = np.minimum(np.abs(values), LARGEST["fp8_e4m3"])
    _, exponent = np.frexp(magnitude)  # magnitude = m * 2^exponent, 0.5 <= m < 1
    step = np.exp2(np.maximum(exponent - 1, -6) - 3)
    return (np.sign(values) * np.rint(magnitude / step) * step).astype(np.float32)
