"""A Llama small enough for unit tests: its configuration and random weights of any stored type."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from octavo.models.llama import LlamaForCausalLM
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


def tiny_llama_tensors(
    hf_config: Mapping[str, object], kind: GGMLType = GGMLType.F32, seed: int = 0
) -> dict[str, StoredTensor]:
    """Every tensor the model asks for: matrices of `kind`, vectors of F32."""
    weights = FakeWeights()
    LlamaForCausalLM(hf_config, weights, FakeOps())
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in weights.asked.items():
        if len(shape) == 2:
            tensors[name] = random_tensor(name, shape, kind, rng)
        else:
            mean = 0.0 if name.endswith("bias") else 1.0
            tensors[name] = float_tensor(name, rng.normal(mean, 0.1, shape).astype(np.float32))
    return tensors
