"""A Llama GGUF file as a transformers model in fp32, read with the `gguf` package.

The independent path to the same weights: neither Octavo's reader nor its decoders take part.
"""

from __future__ import annotations

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from transformers import LlamaConfig, LlamaForCausalLM

NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def llama_from_gguf(path: str) -> LlamaForCausalLM:
    """The model of a file without rope scaling and with a tied embedding."""
    reader = gguf.GGUFReader(path)

    def field(name: str) -> float | int:
        return reader.fields[f"llama.{name}"].contents()

    config = LlamaConfig(
        vocab_size=field("vocab_size"),
        hidden_size=field("embedding_length"),
        intermediate_size=field("feed_forward_length"),
        num_hidden_layers=field("block_count"),
        num_attention_heads=field("attention.head_count"),
        num_key_value_heads=field("attention.head_count_kv"),
        rms_norm_eps=field("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=field("context_length"),
        rope_parameters={"rope_type": "default", "rope_theta": field("rope.freq_base")},
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    state = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        part = tensor.name.removesuffix(".weight").split(".")
        if part[-1] in heads:
            # the file has rotary pairs as neighbours, transformers has them half a head apart
            paired = values.reshape(heads[part[-1]], -1, 2, values.shape[-1])
            values = paired.swapaxes(1, 2).reshape(values.shape)
        state[_name(part)] = torch.from_numpy(values.copy())
    model = LlamaForCausalLM(config).eval()
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert missing == ["lm_head.weight"]
    assert unexpected == []
    model.tie_weights()
    return model


def _name(part: list[str]) -> str:
    if part[0] == "blk":
        return f"model.layers.{part[1]}.{NAMES[part[2]]}.weight"
    return {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}[part[0]]
