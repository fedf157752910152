"""Native packed weights against the `gguf` package: its blocks, its values, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize as reference_dequantize
from gguf.quants import quantize as reference_quantize

from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import StoredTensor
from octavo.ops.library import available_isas, load_library

#: types that the package can quantise to
WRITTEN = [GGMLType.Q4_0, GGMLType.Q4_1, GGMLType.Q5_0, GGMLType.Q5_1, GGMLType.Q8_0, GGMLType.BF16]


def check(isa: str, kind: GGMLType, raw: np.ndarray, n: int, k: int) -> None:
    with np.errstate(over="ignore"):
        expected = reference_dequantize(raw, gguf.GGMLQuantizationType(int(kind)))
    library = load_library(isa)
    pool = library.create_pool(2)
    tensor = StoredTensor("w", kind, (n, k), memoryview(raw.tobytes()))
    weight = library.pack_weight(pool, tensor, kind)
    np.testing.assert_array_equal(weight.dequantize(0, n), expected.astype(np.float32))
    weight.close()
    pool.close()
    converted = library.convert(kind, raw.tobytes(), n * k)
    np.testing.assert_array_equal(converted.reshape(n, k), expected.astype(np.float32))


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("kind", WRITTEN)
def test_blocks_written_by_the_package_are_read_as_it_reads_them(isa: str, kind: GGMLType) -> None:
    values = np.random.default_rng(int(kind)).standard_normal((40, 576)).astype(np.float32)
    raw = reference_quantize(values, gguf.GGMLQuantizationType(int(kind)))
    check(isa, kind, raw, 40, 576)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("kind", [GGMLType.Q4_K, GGMLType.Q5_K, GGMLType.Q6_K])
def test_super_blocks_of_random_bytes_are_read_as_the_package_reads_them(
    isa: str, kind: GGMLType
) -> None:
    block_bytes = {GGMLType.Q4_K: 144, GGMLType.Q5_K: 176, GGMLType.Q6_K: 210}[kind]
    raw = np.random.default_rng(int(kind)).integers(0, 256, (40 * 3, block_bytes), np.uint8)
    for at in (208,) if kind == GGMLType.Q6_K else (0, 2):
        raw[:, at + 1] &= 0xBF  # finite
    check(isa, kind, raw.reshape(40, -1), 40, 768)
