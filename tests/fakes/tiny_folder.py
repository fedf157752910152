"""A checkpoint folder that can be served: a random Llama of 258 tokens with its tokenizer.

Every byte is a token, then `<bos>`, which the tokenizer puts before texts, and `<eos>`.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from tests.fakes.safetensors_writer import write_checkpoint

BOS, EOS, VOCAB_SIZE = 256, 257, 258
HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS = 64, 128, 2, 4, 2
WINDOW = 128


def write_tiny_folder(
    folder: Path, dtype: str = "bfloat16", *, poison: int | None = None, window: int = WINDOW
) -> str:
    """config.json, model.safetensors (weights as `dtype`), tokenizer.json and its configuration;
    gives the folder. The embedding of the token `poison` is not a number: a request that reads it
    fails, whoever else is in its step."""
    weights = _weights()
    if poison is not None:
        weights["model.embed_tokens.weight"][poison] = np.nan
    write_checkpoint(
        folder,
        {name: _stored(values, dtype) for name, values in weights.items()},
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=window,
        bos_token_id=BOS,
        eos_token_id=EOS,
        torch_dtype=dtype,
    )
    _tokenizer().save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<bos>", "eos_token": "<eos>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return str(folder)


def _weights() -> dict[str, npt.NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    head_dim = HIDDEN // HEADS

    def matrix(rows: int, columns: int) -> npt.NDArray[np.float32]:
        return rng.normal(0, columns**-0.5, (rows, columns)).astype(np.float32)

    ones = np.ones(HIDDEN, np.float32)
    weights = {"model.embed_tokens.weight": matrix(VOCAB_SIZE, HIDDEN), "model.norm.weight": ones}
    weights["lm_head.weight"] = matrix(VOCAB_SIZE, HIDDEN)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        weights |= {
            prefix + "input_layernorm.weight": ones,
            prefix + "post_attention_layernorm.weight": ones,
            prefix + "self_attn.q_proj.weight": matrix(HEADS * head_dim, HIDDEN),
            prefix + "self_attn.k_proj.weight": matrix(KV_HEADS * head_dim, HIDDEN),
            prefix + "self_attn.v_proj.weight": matrix(KV_HEADS * head_dim, HIDDEN),
            prefix + "self_attn.o_proj.weight": matrix(HIDDEN, HEADS * head_dim),
            prefix + "mlp.gate_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            prefix + "mlp.up_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            prefix + "mlp.down_proj.weight": matrix(HIDDEN, INTERMEDIATE),
        }
    return weights


def _stored(values: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[np.generic]:
    """As `safetensors_bytes` takes them: bf16 as its bits, cut off."""
    if dtype == "bfloat16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype)


def _tokenizer() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in ("<bos>", "<eos>")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", BOS)]
    )
    return tokenizer
