"""Weights are packed once, checked, and their pages given back."""

from __future__ import annotations

import pytest

from octavo.errors import StartupError
from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import StoredTensor
from octavo.weights.loader import WeightStore


class RecordingOps:
    """Packs into (kind, name) pairs."""

    def __init__(self) -> None:
        self.packed: list[tuple[str, str]] = []

    def pack_linear(self, tensor: StoredTensor) -> object:
        self.packed.append(("linear", tensor.name))
        return self.packed[-1]

    def pack_vector(self, tensor: StoredTensor) -> object:
        self.packed.append(("vector", tensor.name))
        return self.packed[-1]


class FakeCheckpoint:
    """Tensors of zeros; records what was released."""

    path = "fake.gguf"

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self._shapes = shapes
        self.released: list[str] = []
        self.tensor_names = shapes.keys()

    def get(self, name: str) -> StoredTensor:
        return StoredTensor(name, GGMLType.F32, self._shapes[name], memoryview(b""))

    def release(self, tensor: StoredTensor) -> None:
        self.released.append(tensor.name)

    def close(self) -> None: ...


def make_store(**shapes: tuple[int, ...]) -> tuple[WeightStore, RecordingOps, FakeCheckpoint]:
    ops, checkpoint = RecordingOps(), FakeCheckpoint(shapes)
    return WeightStore(checkpoint, ops), ops, checkpoint  # type: ignore[arg-type]  # two ops


def test_a_tied_weight_is_packed_once_and_released_after_it() -> None:
    store, ops, checkpoint = make_store(embed=(8, 4))
    assert store.linear("embed", 8, 4) is store.linear("embed", 8, 4)
    assert ops.packed == [("linear", "embed")]
    assert checkpoint.released == ["embed"]


def test_an_optional_vector_may_be_absent() -> None:
    store, ops, _ = make_store(bias=(4,))
    assert store.optional_vector("other", 4) is None
    assert store.optional_vector("bias", 4) == ("vector", "bias")
    assert store.has("bias")
    assert not store.has("other")
    assert ops.packed == [("vector", "bias")]


def test_another_shape_is_refused_before_packing() -> None:
    store, ops, _ = make_store(w=(8, 4), v=(8,))
    with pytest.raises(StartupError, match=r"tensor w has shape \[8, 4\].*says \[8, 5\]"):
        store.linear("w", 8, 5)
    with pytest.raises(StartupError, match=r"tensor v has shape \[8\].*says \[4\]"):
        store.vector("v", 4)
    assert ops.packed == []
