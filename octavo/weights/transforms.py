"""Per architecture and format: how a checkpoint's tensors become the convention models see.

Models see Hugging Face's names, half-split rotary rows and plain norm weights. A GGUF file differs
in names always, and in values for some architectures; each difference is a row of the tables here.
Source: llama.cpp's convert_hf_to_gguf.py and gguf-py's tensor_mapping.py.

Runs in: every process that opens a checkpoint. Owns: the tables. Knows nothing of: files, bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec


class Rows(Enum):
    """What the rows of a tensor are, where their order differs between formats."""

    AS_STORED = "as stored"
    QUERY_HEADS = "query heads"  # num_attention_heads x head_dim, pairs interleaved in the file
    KEY_HEADS = "key heads"  # num_key_value_heads x head_dim, pairs interleaved in the file


class TensorRule(msgspec.Struct, frozen=True):
    """One tensor of the file: `{}` in both names is the layer's number.

    `value_offset` is added to each value that is read.
    """

    stored_name: str
    hf_name: str
    rows: Rows = Rows.AS_STORED
    value_offset: float = 0.0


class GGUFArchitecture(msgspec.Struct, frozen=True):
    """A value of `general.architecture`: the model class it is, and its tensors.

    `ignored` tensors carry no weight: their content is in the configuration.
    """

    hf_architecture: str
    model_type: str
    rules: tuple[TensorRule, ...]
    ignored: frozenset[str] = frozenset()
    #: keys of config.json that the architecture implies and the metadata does not hold
    implied_config: Mapping[str, object] = {}


def _both(stored: str, hf: str, rows: Rows = Rows.AS_STORED) -> tuple[TensorRule, TensorRule]:
    """Rules of a projection's weight and bias."""
    return (
        TensorRule(f"{stored}.weight", f"{hf}.weight", rows),
        TensorRule(f"{stored}.bias", f"{hf}.bias", rows),
    )


def dense_decoder_rules(*, interleaved_rope: bool) -> tuple[TensorRule, ...]:
    """Llama-shaped layers. `interleaved_rope`: the converter reordered query and key rows so that
    rotary pairs are neighbours."""
    query = Rows.QUERY_HEADS if interleaved_rope else Rows.AS_STORED
    key = Rows.KEY_HEADS if interleaved_rope else Rows.AS_STORED
    block, layer = "blk.{}.", "model.layers.{}."
    return (
        TensorRule("token_embd.weight", "model.embed_tokens.weight"),
        TensorRule("output_norm.weight", "model.norm.weight"),
        TensorRule("output.weight", "lm_head.weight"),
        TensorRule(f"{block}attn_norm.weight", f"{layer}input_layernorm.weight"),
        TensorRule(f"{block}ffn_norm.weight", f"{layer}post_attention_layernorm.weight"),
        *_both(f"{block}attn_q", f"{layer}self_attn.q_proj", query),
        *_both(f"{block}attn_k", f"{layer}self_attn.k_proj", key),
        *_both(f"{block}attn_v", f"{layer}self_attn.v_proj"),
        *_both(f"{block}attn_output", f"{layer}self_attn.o_proj"),
        *_both(f"{block}ffn_gate", f"{layer}mlp.gate_proj"),
        *_both(f"{block}ffn_up", f"{layer}mlp.up_proj"),
        *_both(f"{block}ffn_down", f"{layer}mlp.down_proj"),
    )


#: general.architecture of a GGUF file -> what it is
GGUF_ARCHITECTURES: Final[dict[str, GGUFArchitecture]] = {
    "llama": GGUFArchitecture(
        hf_architecture="LlamaForCausalLM",
        model_type="llama",
        rules=dense_decoder_rules(interleaved_rope=True),
        ignored=frozenset({"rope_freqs.weight"}),
        implied_config={"hidden_act": "silu"},
    ),
}


def interleaved_to_half_split(num_heads: int, head_dim: int) -> list[int]:
    """For each row of a half-split projection, the row of the file it is: a permutation of
    num_heads * head_dim.

    The converter moved row (head, half, pair) to (head, pair, half).
    """
    half = head_dim // 2
    return [
        head * head_dim + 2 * pair + side
        for head in range(num_heads)
        for side in range(2)
        for pair in range(half)
    ]
