"""Products of prompt tokens against torch.

In bfloat16 they are those of values that torch rounds; in rotated int8 they are as far from those
of exact values as two roundings to 8 bits are.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from octavo.ops.dequantize import dequantize
from octavo.ops.ggml_type import BLOCK_SHAPE, GGMLType
from octavo.ops.library import available_isas, load_library
from octavo.ops.program import ElementType
from tests.fakes.memory_checkpoint import random_tensor

QUANTISED = [kind for kind in GGMLType if kind not in (GGMLType.F32, GGMLType.F16, GGMLType.BF16)]


def levels_that_read(form: ElementType) -> list[str]:
    """Those whose quantised weights read prompts so."""
    return [
        isa
        for isa in available_isas()
        if load_library(isa).input_type(GGMLType.Q8_0, is_prompt=True) == form
    ]


def rounded(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values).to(torch.bfloat16).to(torch.float64)


@pytest.mark.parametrize("isa", levels_that_read(ElementType.BF16))
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


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Every 64 of x [rows, k] times the Hadamard matrix, not normalised: [rows, K / 64, 64], with
    zeros at the end."""
    matrix = torch.ones(1, 1, dtype=x.dtype)
    for _ in range(6):
        matrix = torch.kron(torch.tensor([[1, 1], [1, -1]], dtype=x.dtype), matrix)
    padded = torch.nn.functional.pad(x, (0, -x.shape[1] % 64))
    return (padded.reshape(-1, 64) @ matrix).reshape(len(x), -1, 64)


@pytest.mark.parametrize("isa", levels_that_read(ElementType.A8R))
@pytest.mark.parametrize("kind", QUANTISED)
@pytest.mark.parametrize(("n", "k"), [(37, 512), (576, 1536), (100, 768), (64, 96)])
def test_prompts_are_products_in_rotated_int8(isa: str, kind: GGMLType, n: int, k: int) -> None:
    """Rotated values are rounded to whole steps, 127 to the largest of each 64: no product is wrong
    by more than half steps of all of them, all together by as much as such roundings are."""
    if k % BLOCK_SHAPE[kind][0] != 0:
        return  # there is no such weight
    stored = random_tensor("w", (n, k), kind, np.random.default_rng(n))
    weights = torch.from_numpy(dequantize(stored).reshape(n, k)).to(torch.float64)
    w = rotated(weights)
    w_step = w.abs().amax(-1) / 127
    library = load_library(isa)
    pool = library.create_pool(2)
    packed = library.pack_weight(pool, stored, kind)
    for rows in (1, 2, 15, 16, 17, 64, 100, 300):
        values = np.random.default_rng(rows).standard_normal((rows, k)).astype(np.float32)
        got = library.linear(pool, [packed], values, is_prompt=True)[0]
        x = rotated(torch.from_numpy(values).to(torch.float64))
        x_step = x.abs().amax(-1) / 127
        error = torch.from_numpy(got) - torch.from_numpy(values).to(torch.float64) @ weights.T
        # sums of 16-bit lanes are rounded before: up to a tenth of a step more than half of one
        of_weights, of_rows = 0.6 * x.abs().sum(-1) @ w_step.T, x_step @ w.abs().sum(-1).T / 2
        limit = (of_weights + of_rows + 64 * x_step @ w_step.T * 0.3) / 64
        assert bool((error.abs() <= 1.001 * limit).all()), float((error.abs() / limit).max())
        # errors of a rounding are even over a step: their mean square is step^2 / 12
        of_groups = (x**2).sum(-1)[:, None] * w_step**2 + (x_step**2)[:, None] * (w**2).sum(-1)
        if k % 64 != 0:  # half a transform of zeros: each value, and its error, is there twice
            of_groups[..., -1] *= 2
        square = of_groups.sum(-1) / 12 / 64**2
        if rows >= 64:
            ratio = float((error**2).mean() / square.mean())
            assert 0.9 < ratio < 1.1, ratio
    packed.close()
    pool.close()
