"""The network around the layers of a dense decoder: embedding, layers, final norm, head.

Runs in: workers. Knows nothing of: devices, sizes of a step, checkpoint formats, what a layer does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from octavo.models.base import DecoderSizes, Weights
from octavo.models.layers import Attention, GatedMLP, RMSNorm, unchanged
from octavo.ops.interface import KVLayer, Ops, Tensor


class DecoderLayer(Protocol):
    """One layer: [T, hidden_size] -> the same; with `select` the rows that it leaves, of which
    alone the layer computes what follows attention."""

    attention: Attention

    def __call__(self, x: Tensor, select: Callable[[Tensor], Tensor] = unchanged) -> Tensor: ...


class PreNormLayer:
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(
        self,
        weights: Weights,
        ops: Ops,
        name: str,
        sizes: DecoderSizes,
        attention: Attention,
        mlp: GatedMLP,
    ) -> None:
        size, eps = sizes.hidden_size, sizes.rms_norm_eps
        self.attention = attention
        self._ops, self._mlp = ops, mlp
        self._input_norm = RMSNorm(weights, ops, f"{name}.input_layernorm", size, eps)
        self._mlp_norm = RMSNorm(weights, ops, f"{name}.post_attention_layernorm", size, eps)

    def __call__(self, x: Tensor, select: Callable[[Tensor], Tensor] = unchanged) -> Tensor:
        x = self._ops.add(select(x), self.attention(self._input_norm(x), select))
        return self._ops.add(x, self._mlp(self._mlp_norm(x)))


class Decoder:
    """Weights `model.embed_tokens`, `model.norm` and, unless it is tied, `lm_head`.

    Args:
        layer: makes the layer of a number.
        is_tied: the embedding is the head too.
        norm_offset: added to the final norm's weight.
        embedding_scale: what embeddings are multiplied by.
        logit_soft_cap: of the logits; 0: none.
    """

    def __init__(
        self,
        weights: Weights,
        ops: Ops,
        sizes: DecoderSizes,
        layer: Callable[[int], DecoderLayer],
        *,
        is_tied: bool,
        norm_offset: float = 0.0,
        embedding_scale: float = 1.0,
        logit_soft_cap: float = 0.0,
    ) -> None:
        vocab_size, hidden_size = sizes.vocab_size, sizes.hidden_size
        self.vocab_size = vocab_size
        self._ops = ops
        self._embedding = weights.linear("model.embed_tokens.weight", vocab_size, hidden_size)
        self._layers = [layer(number) for number in range(sizes.num_layers)]
        self._norm = RMSNorm(
            weights, ops, "model.norm", hidden_size, sizes.rms_norm_eps, offset=norm_offset
        )
        self._head = (
            self._embedding
            if is_tied
            else weights.linear("lm_head.weight", vocab_size, hidden_size)
        )
        self._embedding_scale = embedding_scale
        self._logit_soft_cap = logit_soft_cap
        self.kv_layers: Sequence[KVLayer] = [one.attention.kv_layer for one in self._layers]

    def forward(self) -> Tensor:
        """Final hidden state of the logit rows: [L, hidden_size]."""
        x = self._ops.embed(self._embedding, scale=self._embedding_scale)
        *layers, last = self._layers
        for layer in layers:
            x = layer(x)
        # of a prompt only the last token's result is wanted from here on
        x = last(x, self._ops.select_rows)
        return self._norm(self._ops.logit_rows(x))

    def logits(self, hidden: Tensor) -> Tensor:
        """[L, vocab_size]."""
        logits = self._ops.lm_head(hidden, self._head)
        return self._ops.soft_cap(logits, self._logit_soft_cap) if self._logit_soft_cap else logits
