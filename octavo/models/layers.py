"""Building blocks that many architectures share: linear, norm, rotary embedding, attention, MLP.

Runs in: workers. Knows nothing of: devices, sizes of a step, checkpoint formats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from octavo.models.base import DecoderSizes, Weights
from octavo.models.rope import Rope, rope_from_config
from octavo.ops.interface import Activation, KVLayer, Ops, Tensor


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
    """Root-mean-square norm with `<name>.weight` [size], to which `offset` is added (Gemma's are
    stored less one). With `num_heads` > 1 the input is that many slices, each normed by itself."""

    def __init__(
        self,
        weights: Weights,
        ops: Ops,
        name: str,
        size: int,
        eps: float,
        *,
        offset: float = 0.0,
        num_heads: int = 1,
    ) -> None:
        self._ops = ops
        self._weight = weights.vector(f"{name}.weight", size)
        self._eps, self._offset, self._num_heads = eps, offset, num_heads

    def __call__(self, x: Tensor) -> Tensor:
        return self._ops.rms_norm(
            x, self._weight, eps=self._eps, offset=self._offset, num_heads=self._num_heads
        )


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


def rotary_embedding(
    ops: Ops, hf_config: Mapping[str, object], sizes: DecoderSizes
) -> RotaryEmbedding:
    """As `hf_config`'s rope parameters say.

    Raises:
        ConfigError: they are not usable.
    """
    rope = rope_from_config(
        hf_config,
        head_dim=sizes.head_dim,
        max_position_embeddings=sizes.max_position_embeddings,
    )
    return RotaryEmbedding(ops, rope, sizes.head_dim)


def unchanged(x: Tensor) -> Tensor:
    """The norm of models that have none at that place; all rows."""
    return x


class Attention:
    """Grouped-query self-attention over the paged cache, from `<name>.{q,k,v,o}_proj`.

    Args:
        layer: its number.
        rope: rotates queries and keys.
        window: tokens it sees, its own included; None: all.
        q_norm, k_norm: what is done to queries and keys before they are rotated.
        has_qkv_bias, has_o_bias: which projections have one.
        scale: of the scores; None: head_dim ** -0.5.
        soft_cap: of the scores; 0: none.
    """

    def __init__(
        self,
        weights: Weights,
        ops: Ops,
        name: str,
        layer: int,
        sizes: DecoderSizes,
        rope: RotaryEmbedding,
        *,
        window: int | None = None,
        q_norm: Callable[[Tensor], Tensor] = unchanged,
        k_norm: Callable[[Tensor], Tensor] = unchanged,
        has_qkv_bias: bool = False,
        has_o_bias: bool = False,
        scale: float | None = None,
        soft_cap: float = 0.0,
    ) -> None:
        hidden_size, head_dim = sizes.hidden_size, sizes.head_dim
        q_size, kv_size = sizes.num_heads * head_dim, sizes.num_kv_heads * head_dim
        self._ops, self._rope = ops, rope
        self._q_norm, self._k_norm = q_norm, k_norm
        self._num_heads, self._num_kv_heads = sizes.num_heads, sizes.num_kv_heads
        self._scale = head_dim**-0.5 if scale is None else scale
        self._soft_cap = soft_cap
        self._q = Linear(weights, ops, f"{name}.q_proj", q_size, hidden_size, has_qkv_bias)
        self._k = Linear(weights, ops, f"{name}.k_proj", kv_size, hidden_size, has_qkv_bias)
        self._v = Linear(weights, ops, f"{name}.v_proj", kv_size, hidden_size, has_qkv_bias)
        self._o = Linear(weights, ops, f"{name}.o_proj", hidden_size, q_size, has_o_bias)
        self.kv_layer = KVLayer(layer, sizes.num_kv_heads, head_dim, head_dim, window)

    def __call__(self, x: Tensor, select: Callable[[Tensor], Tensor] = unchanged) -> Tensor:
        """Of the rows that `select` leaves of the attended values."""
        q, k, v = self._q(x), self._k(x), self._v(x)
        q, k = self._q_norm(q), self._k_norm(k)
        q = self._rope(q, self._num_heads)
        k = self._rope(k, self._num_kv_heads)
        self._ops.kv_write(k, v, self.kv_layer)
        attended = self._ops.attention(
            q,
            self.kv_layer,
            num_heads=self._num_heads,
            scale=self._scale,
            soft_cap=self._soft_cap,
        )
        return self._o(select(attended))


class GatedMLP:
    """down(act(gate(x)) * up(x)) from `<name>.{gate,up,down}_proj`."""

    def __init__(
        self,
        weights: Weights,
        ops: Ops,
        name: str,
        sizes: DecoderSizes,
        activation: Activation,
        has_bias: bool = False,
    ) -> None:
        self._ops = ops
        self._activation = activation
        inner, outer = sizes.intermediate_size, sizes.hidden_size
        self._gate = Linear(weights, ops, f"{name}.gate_proj", inner, outer, has_bias)
        self._up = Linear(weights, ops, f"{name}.up_proj", inner, outer, has_bias)
        self._down = Linear(weights, ops, f"{name}.down_proj", outer, inner, has_bias)

    def __call__(self, x: Tensor) -> Tensor:
        return self._down(self._ops.act_mul(self._gate(x), self._up(x), self._activation))
