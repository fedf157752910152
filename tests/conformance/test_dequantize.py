"""The numpy decoders against the `gguf` package, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize as reference_dequantize

from octavo.ops.dequantize import dequantize
from octavo.ops.ggml_type import BLOCK_SHAPE, GGMLType
from octavo.ops.interface import StoredTensor


def random_blocks(kind: GGMLType, rows: int, cols: int, seed: int) -> np.ndarray:
    """Random bytes whose f16 fields are finite: every exponent's top bit is cleared."""
    elements, block_bytes = BLOCK_SHAPE[kind]
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (rows * cols // elements, block_bytes), np.uint8)
    half_fields = {
        GGMLType.F16: [0],
        GGMLType.BF16: [0],
        GGMLType.Q4_1: [0, 2],
        GGMLType.Q5_1: [0, 2],
        GGMLType.Q4_K: [0, 2],
        GGMLType.Q5_K: [0, 2],
        GGMLType.Q6_K: [208],
    }.get(kind, [0])
    for offset in half_fields:
        raw[:, offset + 1] &= 0xBF
    return raw.reshape(rows, -1)


@pytest.mark.parametrize("kind", [k for k in GGMLType if k != GGMLType.F32])
def test_every_block_type_equals_the_gguf_package(kind: GGMLType) -> None:
    raw = random_blocks(kind, 6, 512, seed=int(kind))
    expected = reference_dequantize(raw, gguf.GGMLQuantizationType(int(kind)))
    stored = StoredTensor("w", kind, (6, 512), memoryview(raw.tobytes()))
    np.testing.assert_array_equal(dequantize(stored), expected.astype(np.float32))
