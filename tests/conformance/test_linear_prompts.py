"""Products of prompt tokens against torch: values and activations rounded to bfloat16 by it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from octavo.ops.dequantize import dequantize
from octavo.ops.ggml_type import GGMLType
from octavo.ops.library import available_isas, load_library
from octavo.ops.program import ElementType
from tests.fakes.memory_checkpoint import random_tensor

QUANTISED = [kind for kind in GGMLType if kind not in (GGMLType.F32, GGMLType.F16, GGMLType.BF16)]
ISAS = [
    isa
    for isa in available_isas()
    if load_library(isa).input_type(GGMLType.Q8_0, is_prompt=True) == ElementType.BF16
]


def rounded(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values).to(torch.bfloat16).to(torch.float64)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", QUANTISED)
@pytest.mark.parametrize(("n", "k"), [(1, 256), (37, 512), (576, 1536), (144, 768)])
def test_prompts_are_products_in_bfloat16(isa: str, kind: GGMLType, n: int, k: int) -> None:
    stored = random_tensor("w", (n, k), kind, np.random.default_rng(n))
    weights = rounded(dequantize(stored).reshape(n, k))
    library = load_library(isa)
    pool = library.create_pool(2)
    packed = library.pack_weight(pool, stored, kind)
    for rows in (1, 2, 15, 16, 17, 31, 33, 64, 100, 600):
        x = np.random.default_rng(rows).standard_normal((rows, k)).astype(np.float32)
        got = library.linear(pool, [packed], x, is_prompt=True)[0]
        expected = rounded(x) @ weights.T
        bound = rounded(x).abs() @ weights.abs().T
        error = (torch.from_numpy(got) - expected).abs()
        assert bool((error <= 4e-6 * bound + 1e-30).all()), float((error / bound).max())
    packed.close()
    pool.close()
