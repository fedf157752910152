"""Complete small models on disk, with which a real server starts in a moment: random weights and a
real byte-level vocabulary, as a GGUF file or as a folder. Every part can be changed or left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.fakes.gguf_writer import FakeTensor, gguf_bytes, llama_metadata, llama_tensors
from tests.fakes.safetensors_writer import Arrays, llama_config, safetensors_bytes
from tests.fakes.vocabularies import byte_level_metadata

CHAT_TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
VOCAB_SIZE = len(byte_level_metadata()["tokenizer.ggml.tokens"])  # type: ignore[arg-type]

_LLAMA_NAMES = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def tiny_metadata(**changes: object) -> dict[str, object]:
    """Metadata of the GGUF file; `changes` are keys with `__` for the dots, None removes."""
    metadata = {
        **llama_metadata(),
        **byte_level_metadata(),
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }
    for key, value in changes.items():
        metadata[key.replace("__", ".")] = value
    return {key: value for key, value in metadata.items() if value is not None}


def tiny_tensors(**changes: FakeTensor | None) -> dict[str, FakeTensor]:
    """Tensors of the GGUF file; `changes` are names with `__` for the dots, None removes."""
    tensors: dict[str, FakeTensor | None] = dict(llama_tensors(VOCAB_SIZE))
    for name, tensor in changes.items():
        tensors[name.replace("__", ".")] = tensor
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def tiny_gguf(
    path: Path,
    metadata: Mapping[str, object] | None = None,
    tensors: Mapping[str, FakeTensor] | None = None,
) -> Path:
    """Writes the file; gives its path."""
    path.write_bytes(gguf_bytes(metadata or tiny_metadata(), tensors or tiny_tensors()))
    return path


def tiny_arrays() -> dict[str, np.ndarray[Any, Any]]:
    """The weights by their Hugging Face names."""
    arrays = {}
    for name, tensor in llama_tensors(VOCAB_SIZE).items():
        assert tensor.data is not None
        *layer, part, kind = name.removeprefix("blk.").split(".")
        middle = f"layers.{layer[0]}." if layer else ""
        array = np.frombuffer(tensor.data, np.float32).reshape(tensor.shape)
        arrays[f"model.{middle}{_LLAMA_NAMES[part]}.{kind}"] = array
    return arrays


def tiny_tokenizer() -> dict[str, Any]:
    """tokenizer.json."""
    metadata: dict[str, Any] = byte_level_metadata()
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    vocab = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in tokens[:3]])
    described: dict[str, Any] = json.loads(tokenizer.to_str())
    return described


def tiny_folder(
    folder: Path,
    *,
    config: Mapping[str, object] | None = None,
    arrays: Arrays | None = None,
    files: Mapping[str, bytes | str | dict[str, Any] | None] | None = None,
) -> Path:
    """Writes a checkpoint folder; gives its path.

    Args:
        config: changes of config.json.
        arrays: instead of `tiny_arrays()`.
        files: more files, or others instead of those made here; None leaves one out.
    """
    folder.mkdir()
    made: dict[str, Any] = {
        "config.json": {
            **llama_config(
                vocab_size=VOCAB_SIZE, eos_token_id=1, bos_token_id=0, tie_word_embeddings=True
            ),
            **(config or {}),
        },
        "model.safetensors": safetensors_bytes(tiny_arrays() if arrays is None else arrays),
        "tokenizer.json": tiny_tokenizer(),
        "tokenizer_config.json": {
            "bos_token": "<|bos|>",
            "eos_token": "<|endoftext|>",
            "chat_template": CHAT_TEMPLATE,
        },
        **(files or {}),
    }
    for name, content in made.items():
        if content is None:
            continue
        data = content if isinstance(content, bytes | str) else json.dumps(content)
        (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder
