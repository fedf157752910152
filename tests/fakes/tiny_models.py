"""Models small enough for unit tests, one of every architecture: configurations and random weights
of any stored type. Windows are shorter than the prompts tests use."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from octavo.models.registry import model_class
from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import StoredTensor
from tests.fakes.memory_checkpoint import float_tensor, random_tensor
from tests.fakes.ops import FakeOps, FakeWeights

TINY_LLAMA: dict[str, object] = {
    "vocab_size": 96,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
}
TINY_MODELS: dict[str, dict[str, object]] = {
    "LlamaForCausalLM": TINY_LLAMA,
    "MistralForCausalLM": TINY_LLAMA | {"sliding_window": 20},
    "Qwen2ForCausalLM": TINY_LLAMA
    | {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1},
    "Qwen3ForCausalLM": TINY_LLAMA | {"head_dim": 64, "tie_word_embeddings": True},
    "Gemma3ForCausalLM": TINY_LLAMA
    | {
        "num_hidden_layers": 4,
        "head_dim": 64,
        "query_pre_attn_scalar": 64,
        "sliding_window": 20,
        "sliding_window_pattern": 2,
        "final_logit_softcapping": 20.0,
    },
}


def tiny_model_tensors(
    architecture: str, kind: GGMLType = GGMLType.F32, seed: int = 0
) -> dict[str, StoredTensor]:
    """Every tensor the model asks for: matrices of `kind`, vectors of F32."""
    return tensors_for(architecture, TINY_MODELS[architecture], kind, seed)


def tensors_for(
    architecture: str, hf_config: Mapping[str, object], kind: GGMLType, seed: int
) -> dict[str, StoredTensor]:
    """As `tiny_model_tensors`, of any configuration."""
    weights = FakeWeights()
    model_class(architecture)(hf_config, weights, FakeOps())  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    is_stored_less_one = architecture.startswith("Gemma")
    tensors = {}
    for name, shape in weights.asked.items():
        if len(shape) == 2:
            tensors[name] = random_tensor(name, shape, kind, rng)
        else:
            mean = 0.0 if name.endswith("bias") or is_stored_less_one else 1.0
            tensors[name] = float_tensor(name, rng.normal(mean, 0.1, shape).astype(np.float32))
    return tensors
