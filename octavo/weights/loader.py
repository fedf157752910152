"""Weights for a model: each tensor packed by the backend once, then its pages given back.

Runs in: workers. Owns: shape checks, and that no tensor is packed twice.
Knows nothing of: formats, kernels, model classes.
"""

from __future__ import annotations

from octavo.errors import StartupError
from octavo.ops.interface import Ops, StoredTensor, Weight
from octavo.weights.checkpoint import Checkpoint
from octavo.wording import shown


class WeightStore:
    """What a model's constructor asks for its weights, by Hugging Face's names.

    Args:
        checkpoint: where tensors come from.
        ops: the backend that packs them.

    Asking for the same weight twice (a tied embedding) gives the same handle.
    """

    def __init__(self, checkpoint: Checkpoint, ops: Ops) -> None:
        self._checkpoint = checkpoint
        self._ops = ops
        self._names = frozenset(checkpoint.tensor_names)
        self._packed: dict[str, Weight] = {}

    def has(self, name: str) -> bool:
        """True when the checkpoint has the tensor."""
        return name in self._names

    def linear(self, name: str, n: int, k: int) -> Weight:
        """The [n, k] weight of a linear layer, an embedding or an output head.

        Raises:
            ConfigError: its type is not supported.
            StartupError: it is missing or has another shape.
        """
        if name not in self._packed:
            tensor = self._checkpoint.get(name)
            self._check_shape(tensor, (n, k))
            self._packed[name] = self._ops.pack_linear(tensor)
            self._checkpoint.release(tensor)
        return self._packed[name]

    def vector(self, name: str, n: int) -> Weight:
        """The [n] weight of a norm, or a bias, kept as f32.

        Raises:
            ConfigError: its type is not supported.
            StartupError: it is missing or has another shape.
        """
        if name not in self._packed:
            tensor = self._checkpoint.get(name)
            self._check_shape(tensor, (n,))
            self._packed[name] = self._ops.pack_vector(tensor)
            self._checkpoint.release(tensor)
        return self._packed[name]

    def optional_vector(self, name: str, n: int) -> Weight | None:
        """As `vector`, None when the checkpoint does not have it (a bias)."""
        return self.vector(name, n) if self.has(name) else None

    def _check_shape(self, tensor: StoredTensor, expected: tuple[int, ...]) -> None:
        if tensor.shape != expected:
            raise StartupError(
                f"{self._checkpoint.path}: tensor {tensor.name} has shape "
                f"{shown(list(tensor.shape))}, but the model's configuration says "
                f"{list(expected)}; the file and its configuration do not belong together."
            )
