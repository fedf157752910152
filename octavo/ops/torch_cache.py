"""K or V of a layer on a PyTorch device: what a cache of each element type keeps of values.

Runs in: workers on CUDA, tests. Owns: the memory of one cache. Knows nothing of: blocks, requests.
"""

from __future__ import annotations

import torch
from torch import Tensor

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
#: one-byte cache -> PyTorch's type and the largest code
_CODES = {"int8": (torch.int8, 127.0), "fp8_e4m3": (torch.float8_e4m3fn, 448.0)}


class TorchCache:
    """K or V of one layer: [slots, kv_heads, head_dim], with a scale per slot and head if its
    values are one-byte codes."""

    def __init__(self, shape: tuple[int, int, int], dtype: str, device: torch.device) -> None:
        self._largest: float | None = None
        if dtype in DTYPES:
            self._values = torch.zeros(shape, dtype=DTYPES[dtype], device=device)
            return
        element, self._largest = _CODES[dtype]
        self._values = torch.zeros(shape, dtype=torch.int8, device=device).view(element)
        self._scales = torch.zeros(*shape[:2], 1, device=device)

    def write(self, slots: Tensor, values: Tensor) -> None:
        """Stores f32 [tokens, kv_heads, head_dim]; rounding is that of csrc/src/kv_codec.h."""
        if self._largest is None:
            self._values[slots] = values.to(self._values.dtype)
            return
        amax = values.abs().amax(-1, keepdim=True)
        is_zero = amax < 1e-35
        factor = (self._largest / amax).masked_fill(is_zero, 0)
        codes = (values * factor).clamp(-self._largest, self._largest)
        if self._values.dtype == torch.int8:
            codes = codes.round()
        # not every device writes float8 by index
        self._values.view(torch.int8)[slots] = codes.to(self._values.dtype).view(torch.int8)
        self._scales[slots] = (amax / self._largest).masked_fill(is_zero, 0)

    def read(self, slots: Tensor) -> Tensor:
        """f32 [slots, kv_heads, head_dim]."""
        if self._largest is None:
            return self._values[slots].float()
        codes = self._values.view(torch.int8)[slots].view(self._values.dtype)
        return codes.float() * self._scales[slots]
