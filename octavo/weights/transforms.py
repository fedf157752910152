"""Per architecture and format: how a checkpoint's tensors become the convention models see.

Models see Hugging Face's names, half-split rotary rows and plain norm weights. A GGUF file differs
in names always, and in values for some architectures; each difference is a row of the tables here.
Source: llama.cpp's convert_hf_to_gguf.py and gguf-py's tensor_mapping.py.

Runs in: every process that opens a checkpoint. Owns: the tables. Knows nothing of: files, bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

import msgspec

#: where a layer's tensors are, in the file and for models
_BLOCK, _LAYER = "blk.{}.", "model.layers.{}."


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


def dense_decoder_rules(
    *, interleaved_rope: bool = False, mlp_norm: str = "post_attention_layernorm"
) -> tuple[TensorRule, ...]:
    """What all dense decoders have.

    Args:
        interleaved_rope: the converter reordered query and key rows so that rotary pairs are
            neighbours.
        mlp_norm: name of the norm before the feed-forward.
    """
    query = Rows.QUERY_HEADS if interleaved_rope else Rows.AS_STORED
    key = Rows.KEY_HEADS if interleaved_rope else Rows.AS_STORED
    return (
        TensorRule("token_embd.weight", "model.embed_tokens.weight"),
        TensorRule("output_norm.weight", "model.norm.weight"),
        TensorRule("output.weight", "lm_head.weight"),
        TensorRule(f"{_BLOCK}attn_norm.weight", f"{_LAYER}input_layernorm.weight"),
        TensorRule(f"{_BLOCK}ffn_norm.weight", f"{_LAYER}{mlp_norm}.weight"),
        *_both(f"{_BLOCK}attn_q", f"{_LAYER}self_attn.q_proj", query),
        *_both(f"{_BLOCK}attn_k", f"{_LAYER}self_attn.k_proj", key),
        *_both(f"{_BLOCK}attn_v", f"{_LAYER}self_attn.v_proj"),
        *_both(f"{_BLOCK}attn_output", f"{_LAYER}self_attn.o_proj"),
        *_both(f"{_BLOCK}ffn_gate", f"{_LAYER}mlp.gate_proj"),
        *_both(f"{_BLOCK}ffn_up", f"{_LAYER}mlp.up_proj"),
        *_both(f"{_BLOCK}ffn_down", f"{_LAYER}mlp.down_proj"),
    )


_HEAD_NORMS: Final = (
    TensorRule(f"{_BLOCK}attn_q_norm.weight", f"{_LAYER}self_attn.q_norm.weight"),
    TensorRule(f"{_BLOCK}attn_k_norm.weight", f"{_LAYER}self_attn.k_norm.weight"),
)


def _norms_less_one(rules: Iterable[TensorRule]) -> tuple[TensorRule, ...]:
    """Gemma's converter adds 1 to every norm's weight, which the model adds again."""
    return tuple(
        msgspec.structs.replace(rule, value_offset=-1.0)
        if rule.stored_name.endswith("norm.weight")
        else rule
        for rule in rules
    )


#: general.architecture of a GGUF file -> what it is; files of Mistral's models say llama
GGUF_ARCHITECTURES: Final[dict[str, GGUFArchitecture]] = {
    "llama": GGUFArchitecture(
        hf_architecture="LlamaForCausalLM",
        model_type="llama",
        rules=dense_decoder_rules(interleaved_rope=True),
        ignored=frozenset({"rope_freqs.weight"}),
        implied_config={"hidden_act": "silu"},
    ),
    "qwen2": GGUFArchitecture(
        hf_architecture="Qwen2ForCausalLM",
        model_type="qwen2",
        rules=dense_decoder_rules(),
        implied_config={"hidden_act": "silu", "use_sliding_window": False},
    ),
    "qwen3": GGUFArchitecture(
        hf_architecture="Qwen3ForCausalLM",
        model_type="qwen3",
        rules=(*dense_decoder_rules(), *_HEAD_NORMS),
        implied_config={"hidden_act": "silu", "use_sliding_window": False},
    ),
    "gemma3": GGUFArchitecture(
        hf_architecture="Gemma3ForCausalLM",
        model_type="gemma3_text",
        rules=_norms_less_one(
            (
                *dense_decoder_rules(mlp_norm="pre_feedforward_layernorm"),
                *_HEAD_NORMS,
                TensorRule(
                    f"{_BLOCK}post_attention_norm.weight",
                    f"{_LAYER}post_attention_layernorm.weight",
                ),
                TensorRule(
                    f"{_BLOCK}post_ffw_norm.weight", f"{_LAYER}post_feedforward_layernorm.weight"
                ),
            )
        ),
        implied_config={"hidden_activation": "gelu_pytorch_tanh"},
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
