"""Qwen2ForCausalLM: Qwen2 and Qwen2.5. Llama's network with biased query, key and value.

Runs in: workers. Knows nothing of: devices, sizes of a step, checkpoint formats.
"""

from __future__ import annotations

from collections.abc import Mapping

from octavo.models.base import ConfigReader, Weights
from octavo.models.decoder import Decoder, PreNormLayer
from octavo.models.layers import Attention, GatedMLP, rotary_embedding
from octavo.ops.interface import Ops


class Qwen2ForCausalLM(Decoder):
    """See `octavo.models.base.CausalLM`."""

    def __init__(self, hf_config: Mapping[str, object], weights: Weights, ops: Ops) -> None:
        read = ConfigReader(hf_config, "Qwen2ForCausalLM")
        sizes = read.sizes()
        activation = read.activation("hidden_act", "silu")
        windows = qwen_windows(read, sizes.num_layers)
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
                window=windows[number],
                has_qkv_bias=True,
            )
            mlp = GatedMLP(weights, ops, f"{name}.mlp", sizes, activation)
            return PreNormLayer(weights, ops, name, sizes, attention, mlp)

        super().__init__(weights, ops, sizes, layer, is_tied=is_tied)


def qwen_windows(read: ConfigReader, num_layers: int) -> list[int | None]:
    """Windows of Qwen's layers: none unless `use_sliding_window`; then those from
    `max_window_layers` on have one, where `layer_types` does not say otherwise."""
    if not read.boolean("use_sliding_window", False):
        return [None] * num_layers
    window = read.sliding_window()
    first = read.integer("max_window_layers", 28, minimum=0)
    return read.windows(num_layers, window, lambda n: window is not None and n >= first)
