"""How the native library prepares prompt tokens on levels with the rotated form, in numpy.

Knows nothing of: plans, weights.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

#: values that are transformed together, with one scale
POINTS = 64

F32 = npt.NDArray[np.float32]


def transformed(x: npt.NDArray[np.floating], points: int = POINTS) -> npt.NDArray[np.floating]:
    """Every `points` of x [rows, k], k a multiple of it, times the Hadamard matrix, not normalised.

    All operations are in the type of x and in the library's order, so bits are the same.
    """
    y = x.reshape(-1, points)
    half = 1
    while half < points:
        pairs = y.reshape(-1, points // (2 * half), 2, half)
        first, second = pairs[:, :, 0], pairs[:, :, 1]
        y = np.stack([first + second, first - second], axis=2)
        half *= 2
    return y.reshape(x.shape)


def rotated(x: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """x [rows, k] with zeros up to a multiple of 64 columns, transformed: [rows, K]."""
    return transformed(np.pad(x, ((0, 0), (0, -x.shape[1] % POINTS))))


def largest_of_groups(y: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """[rows, K] -> [rows, K / 64], of magnitudes."""
    largest: npt.NDArray[np.floating] = np.abs(y).reshape(len(y), -1, POINTS).max(-1)
    return largest


def spread(of_groups: npt.NDArray[np.floating], cols: int) -> npt.NDArray[np.floating]:
    """[rows, groups] -> [rows, cols]: what a group has, at each of its values."""
    return np.repeat(of_groups, POINTS, axis=1)[:, :cols]


def quantize_rotated(x: F32) -> tuple[npt.NDArray[np.int8], F32]:
    """Integers [rows, K] and scales [rows, K / 64] of finite x [rows, k]."""
    y = rotated(x)
    amax = largest_of_groups(y)
    is_zero = amax < np.float32(1e-36)
    safe = np.where(is_zero, np.float32(1), amax)
    factor = np.where(is_zero, np.float32(0), np.float32(127) / safe)
    scale = np.where(is_zero, np.float32(0), amax / np.float32(127))
    integers = np.rint(y * spread(factor, y.shape[1])).astype(np.int8)
    return integers, scale


def rotated_int8(x: F32) -> npt.NDArray[np.float64]:
    """The values [rows, K] that rotated weights are multiplied with, exactly."""
    integers, scale = quantize_rotated(x)
    return integers.astype(np.float64) * spread(scale.astype(np.float64), integers.shape[1])


def rotated_back(y: npt.NDArray[np.float64], cols: int) -> npt.NDArray[np.float64]:
    """[rows, cols]: what y [rows, K] is the rotation of."""
    return transformed(y)[:, :cols] / POINTS
