"""Building blocks that many architectures share: linear, norm, rotary embedding, gated MLP.

Runs in: workers. Knows nothing of: devices, sizes of a step, checkpoint formats.
"""

from __future__ import annotations

from octavo.models.base import Weights
from octavo.models.rope import Rope
from octavo.ops.interface import Activation, Ops, Tensor


class Linear:
    """y = x @ W.T (+ b), from `<name>.weight` [n, k] and, if it has one, `<name>.bias` [n]."""

    def __init__(
        self, weights: Weights, ops: Ops, name: str, n: int, k: int, has_bias: bool = False
    ) -> None:
        self._ops = ops
        self._weight = weights.linear(f"{name}.weight", n, k)
        self._bias = weights.vector(f"{name}.bias", n) if has_bias else None

    def __call__(self, x: Tensor) -> Tensor:
        return self._ops.linear(x, self._weight, self._bias)


class RMSNorm:
    """Root-mean-square norm with `<name>.weight` [size]."""

    def __init__(self, weights: Weights, ops: Ops, name: str, size: int, eps: float) -> None:
        self._ops = ops
        self._weight = weights.vector(f"{name}.weight", size)
        self._eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        return self._ops.rms_norm(x, self._weight, eps=self._eps)


class RotaryEmbedding:
    """Rotation of query and key heads; one object serves all layers with the same frequencies."""

    def __init__(self, ops: Ops, rope: Rope, head_dim: int) -> None:
        self._ops = ops
        self._inv_freq = ops.constant(rope.inv_freq)
        self._rope = rope
        self._head_dim = head_dim

    def __call__(self, x: Tensor, num_heads: int) -> Tensor:
        return self._ops.rope(
            x,
            self._inv_freq,
            num_heads=num_heads,
            head_dim=self._head_dim,
            rotary_dim=self._rope.rotary_dim,
            scaling=self._rope.scaling,
        )


class GatedMLP:
    """down(act(gate(x)) * up(x)) from `<name>.{gate,up,down}_proj`."""

    def __init__(
        self,
        weights: Weights,
        ops: Ops,
        name: str,
        hidden_size: int,
        intermediate_size: int,
        activation: Activation,
        has_bias: bool = False,
    ) -> None:
        self._ops = ops
        self._activation = activation
        inner, outer = intermediate_size, hidden_size
        self._gate = Linear(weights, ops, f"{name}.gate_proj", inner, outer, has_bias)
        self._up = Linear(weights, ops, f"{name}.up_proj", inner, outer, has_bias)
        self._down = Linear(weights, ops, f"{name}.down_proj", outer, inner, has_bias)

    def __call__(self, x: Tensor) -> Tensor:
        return self._down(self._ops.act_mul(self._gate(x), self._up(x), self._activation))
