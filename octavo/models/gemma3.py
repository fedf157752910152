"""Gemma3ForCausalLM: norms before and after attention and feed-forward, and over each head; most
layers see a sliding window and have a rotary base of their own.

Runs in: workers. Knows nothing of: devices, sizes of a step, checkpoint formats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from octavo.models.base import FULL, SLIDING, ConfigReader, Weights
from octavo.models.decoder import Decoder
from octavo.models.layers import Attention, GatedMLP, RMSNorm, rotary_embedding, unchanged
from octavo.ops.interface import Ops, Tensor

NORM_OFFSET = 1.0  # norm weights are stored less one
#: rotary bases of layers that see everything and of those with a window, where none is given
GLOBAL_THETA, LOCAL_THETA = 1_000_000.0, 10_000.0
DEFAULT_PATTERN = 6  # every sixth layer sees everything


class SandwichNormLayer:
    """x + norm(attention(norm(x))), then x + norm(mlp(norm(x)))."""

    def __init__(
        self,
        ops: Ops,
        name: str,
        norm: Callable[[str], RMSNorm],
        attention: Attention,
        mlp: GatedMLP,
    ) -> None:
        self.attention = attention
        self._ops, self._mlp = ops, mlp
        self._before_attention = norm(f"{name}.input_layernorm")
        self._after_attention = norm(f"{name}.post_attention_layernorm")
        self._before_mlp = norm(f"{name}.pre_feedforward_layernorm")
        self._after_mlp = norm(f"{name}.post_feedforward_layernorm")

    def __call__(self, x: Tensor, select: Callable[[Tensor], Tensor] = unchanged) -> Tensor:
        attended = self.attention(self._before_attention(x), select)
        x = self._ops.add(select(x), self._after_attention(attended))
        return self._ops.add(x, self._after_mlp(self._mlp(self._before_mlp(x))))


class Gemma3ForCausalLM(Decoder):
    """See `octavo.models.base.CausalLM`."""

    def __init__(self, hf_config: Mapping[str, object], weights: Weights, ops: Ops) -> None:
        read = ConfigReader(hf_config, "Gemma3ForCausalLM")
        sizes = read.sizes()
        activation = read.activation("hidden_activation", "gelu_pytorch_tanh")
        windows = _windows(read, sizes.num_layers)
        has_bias = read.boolean("attention_bias", False)
        is_tied = read.boolean("tie_word_embeddings", True)
        scale = read.number("query_pre_attn_scalar", 256) ** -0.5
        score_cap = _soft_cap(read, "attn_logit_softcapping")
        logit_cap = _soft_cap(read, "final_logit_softcapping")
        if read.boolean("use_bidirectional_attention", False):
            raise read.error("use_bidirectional_attention", True, "causal attention")
        ropes = {
            kind: rotary_embedding(ops, parameters, sizes)
            for kind, parameters in _rope_parameters(hf_config).items()
        }

        def norm(name: str, size: int = sizes.hidden_size, num_heads: int = 1) -> RMSNorm:
            eps = sizes.rms_norm_eps
            return RMSNorm(weights, ops, name, size, eps, offset=NORM_OFFSET, num_heads=num_heads)

        def layer(number: int) -> SandwichNormLayer:
            name = f"model.layers.{number}"
            attention = Attention(
                weights,
                ops,
                f"{name}.self_attn",
                number,
                sizes,
                ropes[FULL if windows[number] is None else SLIDING],
                window=windows[number],
                q_norm=norm(f"{name}.self_attn.q_norm", sizes.head_dim, sizes.num_heads),
                k_norm=norm(f"{name}.self_attn.k_norm", sizes.head_dim, sizes.num_kv_heads),
                has_qkv_bias=has_bias,
                has_o_bias=has_bias,
                scale=scale,
                soft_cap=score_cap,
            )
            mlp = GatedMLP(weights, ops, f"{name}.mlp", sizes, activation)
            return SandwichNormLayer(ops, name, norm, attention, mlp)

        super().__init__(
            weights,
            ops,
            sizes,
            layer,
            is_tied=is_tied,
            norm_offset=NORM_OFFSET,
            embedding_scale=sizes.hidden_size**0.5,
            logit_soft_cap=logit_cap,
        )


def _windows(read: ConfigReader, num_layers: int) -> list[int | None]:
    """`layer_types`, or in older files `sliding_window_pattern`: each n-th layer sees all."""
    pattern = read.integer("sliding_window_pattern", DEFAULT_PATTERN)
    window = read.sliding_window()
    return read.windows(num_layers, window, lambda n: window is not None and (n + 1) % pattern != 0)


def _soft_cap(read: ConfigReader, key: str) -> float:
    """0: none."""
    return read.number(key) if read.has(key) else 0.0


def _rope_parameters(hf_config: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    """What `rope_from_config` reads, per kind of layer. Newer files have a table for each kind,
    older ones a key of its own for the local base."""
    parameters = hf_config.get("rope_parameters")
    tables = parameters if isinstance(parameters, Mapping) else {}
    scaling = {} if SLIDING in tables or FULL in tables else hf_config.get("rope_scaling")
    return {
        FULL: {
            "rope_theta": hf_config.get("rope_theta") or GLOBAL_THETA,
            "rope_scaling": scaling or None,
            "rope_parameters": tables.get(FULL),
        },
        SLIDING: {
            "rope_theta": hf_config.get("rope_local_base_freq") or LOCAL_THETA,
            "rope_parameters": tables.get(SLIDING),
        },
    }
