"""MistralForCausalLM: Llama's network without biases; all layers may see a sliding window.

Runs in: workers. Knows nothing of: devices, sizes of a step, checkpoint formats.
"""

from __future__ import annotations

from collections.abc import Mapping

from octavo.models.base import ConfigReader, Weights
from octavo.models.decoder import Decoder, PreNormLayer
from octavo.models.layers import Attention, GatedMLP, rotary_embedding
from octavo.ops.interface import Ops


class MistralForCausalLM(Decoder):
    """See `octavo.models.base.CausalLM`."""

    def __init__(self, hf_config: Mapping[str, object], weights: Weights, ops: Ops) -> None:
        read = ConfigReader(hf_config, "MistralForCausalLM")
        sizes = read.sizes()
        activation = read.activation("hidden_act", "silu")
        window = read.sliding_window()
        is_tied = read.boolean("tie_word_embeddings", False)
        rope = rotary_embedding(ops, hf_config, sizes)

        def layer(number: int) -> PreNormLayer:
            name = f"model.layers.{number}"
            attention = Attention(
                weights, ops, f"{name}.self_attn", number, sizes, rope, window=window
            )
            mlp = GatedMLP(weights, ops, f"{name}.mlp", sizes, activation)
            return PreNormLayer(weights, ops, name, sizes, attention, mlp)

        super().__init__(weights, ops, sizes, layer, is_tied=is_tied)
