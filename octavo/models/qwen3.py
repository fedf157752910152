"""Qwen3ForCausalLM: Llama's network with a norm over each query and key head.

Runs in: workers. Knows nothing of: devices, sizes of a step, checkpoint formats.
"""

from __future__ import annotations

from collections.abc import Mapping

from octavo.models.base import ConfigReader, Weights
from octavo.models.decoder import Decoder, PreNormLayer
from octavo.models.layers import Attention, GatedMLP, RMSNorm, rotary_embedding
from octavo.models.qwen2 import qwen_windows
from octavo.ops.interface import Ops


class Qwen3ForCausalLM(Decoder):
    """See `octavo.models.base.CausalLM`."""

    def __init__(self, hf_config: Mapping[str, object], weights: Weights, ops: Ops) -> None:
        read = ConfigReader(hf_config, "Qwen3ForCausalLM")
        sizes = read.sizes()
        head_dim = sizes.head_dim
        activation = read.activation("hidden_act", "silu")
        windows = qwen_windows(read, sizes.num_layers)
        has_bias = read.boolean("attention_bias", False)
        is_tied = read.boolean("tie_word_embeddings", False)
        rope = rotary_embedding(ops, hf_config, sizes)

        def head_norm(name: str, num_heads: int) -> RMSNorm:
            return RMSNorm(weights, ops, name, head_dim, sizes.rms_norm_eps, num_heads=num_heads)

        def layer(number: int) -> PreNormLayer:
            name = f"model.layers.{number}"
            attention = Attention(
                weights,
                ops,
                f"{name}.self_attn",
                number,
                sizes,
                rope,
                window=windows[number],
                q_norm=head_norm(f"{name}.self_attn.q_norm", sizes.num_heads),
                k_norm=head_norm(f"{name}.self_attn.k_norm", sizes.num_kv_heads),
                has_qkv_bias=has_bias,
                has_o_bias=has_bias,
            )
            mlp = GatedMLP(weights, ops, f"{name}.mlp", sizes, activation)
            return PreNormLayer(weights, ops, name, sizes, attention, mlp)

        super().__init__(weights, ops, sizes, layer, is_tied=is_tied)
