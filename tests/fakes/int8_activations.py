"""How the native library quantises activations, in numpy.

Knows nothing of: plans, weights.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

GROUP = 32


def quantize_activations(
    x: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Integers [rows, k] and scales [rows, k / 32] of x [rows, k]: symmetric, per row and group.

    All operations are in f32, as the library does them.
    """
    groups = x.reshape(len(x), -1, GROUP)
    amax = np.abs(groups).max(-1)
    safe = np.maximum(amax, np.float32(1e-36))
    inverse = np.where(amax < 1e-36, np.float32(0), np.float32(127) / safe)
    scale = np.where(amax < 1e-36, np.float32(0), amax / np.float32(127))
    integers = np.rint(groups * inverse[..., None]).astype(np.int8)
    return integers.reshape(x.shape), scale


def rounded_to_int8(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The values a quantised weight is multiplied with, exactly."""
    integers, scale = quantize_activations(x)
    return integers.astype(np.float64) * np.repeat(scale.astype(np.float64), GROUP, axis=1)
