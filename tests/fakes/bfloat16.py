"""Rounding to bfloat16, in numpy.

Knows nothing of: plans, weights.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def rounded_to_bfloat16(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The nearest values that bfloat16 has, ties to even. Finite numbers only."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)
