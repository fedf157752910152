"""A `ModelConfig` whose vocabulary is that of `byte_tokenizer.py`."""

from __future__ import annotations

from typing import Any

from octavo.config.engine import ModelConfig
from tests.fakes.byte_tokenizer import EOS, VOCAB_SIZE


def model_config(**changes: Any) -> ModelConfig:
    fields: dict[str, Any] = {
        "model": "tiny",
        "served_model_names": ["tiny"],
        "weights_path": "tiny.gguf",
        "weights_format": "gguf",
        "tokenizer_path": "tiny.gguf",
        "architecture": "LlamaForCausalLM",
        "hf_config": {},
        "dtype": "auto",
        "vocab_size": VOCAB_SIZE,
        "max_model_len": 64,
        "max_model_len_is_given": False,
        "eos_token_ids": [EOS],
    }
    return ModelConfig(**{**fields, **changes})
