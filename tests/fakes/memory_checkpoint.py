"""A checkpoint made of arrays, and random tensors of every stored type to fill it with.

Knows nothing of: files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from octavo.ops.ggml_type import BLOCK_SHAPE, GGMLType
from octavo.ops.interface import StoredTensor

#: type -> offsets of the f16 fields of a block
HALF_FIELDS: dict[GGMLType, tuple[int, ...]] = {
    GGMLType.F16: (0,),
    GGMLType.Q4_0: (0,),
    GGMLType.Q4_1: (0, 2),
    GGMLType.Q5_0: (0,),
    GGMLType.Q5_1: (0, 2),
    GGMLType.Q8_0: (0,),
    GGMLType.Q4_K: (0, 2),
    GGMLType.Q5_K: (0, 2),
    GGMLType.Q6_K: (208,),
}
#: magnitude of the f16 fields that gives weights of about 0.05
FIELD_SCALE: dict[GGMLType, float] = {
    GGMLType.F16: 0.05,
    GGMLType.Q4_0: 0.01,
    GGMLType.Q4_1: 0.01,
    GGMLType.Q5_0: 0.005,
    GGMLType.Q5_1: 0.005,
    GGMLType.Q8_0: 0.0007,
    GGMLType.Q4_K: 0.0003,
    GGMLType.Q5_K: 0.00015,
    GGMLType.Q6_K: 0.00003,
}


class MemoryCheckpoint:
    """See `octavo.weights.checkpoint.Checkpoint`."""

    path = "memory"

    def __init__(self, tensors: Mapping[str, StoredTensor]) -> None:
        self._tensors = tensors
        self.is_closed = False
        self.released: list[str] = []

    @property
    def tensor_names(self) -> Iterable[str]:
        return self._tensors.keys()

    def get(self, name: str) -> StoredTensor:
        return self._tensors[name]

    def release(self, tensor: StoredTensor) -> None:
        self.released.append(tensor.name)

    def close(self) -> None:
        self.is_closed = True


def float_tensor(name: str, values: npt.NDArray[np.float32]) -> StoredTensor:
    """An F32 tensor of these values."""
    values = np.ascontiguousarray(values, np.float32)
    return StoredTensor(name, GGMLType.F32, values.shape, memoryview(values.tobytes()))


def random_tensor(
    name: str, shape: tuple[int, ...], kind: GGMLType, rng: np.random.Generator
) -> StoredTensor:
    """Random stored bytes that decode to small numbers."""
    if kind == GGMLType.F32:
        return float_tensor(name, rng.normal(0, 0.05, shape).astype(np.float32))
    if kind == GGMLType.BF16:
        bits = rng.normal(0, 0.05, shape).astype(np.float32).view(np.uint32) >> 16
        data = bits.astype(np.uint16).tobytes()
        return StoredTensor(name, kind, shape, memoryview(data))
    elements, block_bytes = BLOCK_SHAPE[kind]
    blocks = rng.integers(0, 256, (int(np.prod(shape)) // elements, block_bytes), np.uint8)
    for offset in HALF_FIELDS[kind]:
        field = rng.normal(0, FIELD_SCALE[kind], len(blocks)).astype(np.float16)
        blocks[:, offset : offset + 2] = field.view(np.uint8).reshape(-1, 2)
    return StoredTensor(name, kind, shape, memoryview(blocks.tobytes()))
