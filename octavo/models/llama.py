"""LlamaForCausalLM: the network of Llama, SmolLM2 and many others.

Pre-norm decoder, grouped-query attention with rotary embeddings, gated feed-forward.

Runs in: workers. Knows nothing of: devices, sizes of a step, checkpoint formats.
"""

from __future__ import annotations

from collections.abc import Mapping

from octavo.models.base import ConfigReader, Weights
from octavo.models.decoder import Decoder, PreNormLayer
from octavo.models.layers import Attention, GatedMLP, rotary_embedding
from octavo.ops.interface import Ops


class LlamaForCausalLM(Decoder):
    """See `octavo.models.base.CausalLM`."""

    def __init__(self, hf_config: Mapping[str, object], weights: Weights, ops: Ops) -> None:
        read = ConfigReader(hf_config, "LlamaForCausalLM")
        sizes = read.sizes()
        activation = read.activation("hidden_act", "silu")
        has_attention_bias = read.boolean("attention_bias", False)
        has_mlp_bias = read.boolean("mlp_bias", False)
        is_tied = read.boolean("tie_word_embeddings", False)
        rope = rotary_embedding(ops, hf_config, sizes)

        def layer(number: int) -> PreNormLayer:
            name = f"model.layers.{number}"
            attention = Attention(
                weights,
                ops,
                f"{name}.self_attn",
                number,
                sizes,
                rope,
                has_qkv_bias=has_attention_bias,
                has_o_bias=has_attention_bias,
            )
            mlp = GatedMLP(weights, ops, f"{name}.mlp", sizes, activation, has_mlp_bias)
            return PreNormLayer(weights, ops, name, sizes, attention, mlp)

        super().__init__(weights, ops, sizes, layer, is_tied=is_tied)
