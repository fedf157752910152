"""Rotary frequencies against transformers, every scaling variant."""

from __future__ import annotations

import numpy as np
import pytest
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from octavo.models.rope import rope_from_config

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
VARIANTS: dict[str, dict[str, object]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": LLAMA3,
    "yarn": YARN,
    "yarn, its own attention factor": YARN | {"attention_factor": 1.3},
    "yarn, other betas": YARN | {"beta_fast": 16.0, "beta_slow": 2.0},
    "yarn, mscale": YARN | {"mscale": 0.8, "mscale_all_dim": 0.5},
    "yarn, not truncated": YARN | {"truncate": False},
}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("theta", [10000.0, 500000.0])
def test_frequencies_and_scaling_equal_transformers(name: str, theta: float) -> None:
    config = LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        max_position_embeddings=2048,
        rope_parameters=VARIANTS[name] | {"rope_theta": theta},
    )
    expected = LlamaRotaryEmbedding(config)
    made = rope_from_config(config.to_dict(), head_dim=64, max_position_embeddings=2048)
    np.testing.assert_allclose(made.inv_freq, expected.inv_freq.numpy(), rtol=3e-7)
    assert made.scaling == pytest.approx(expected.attention_scaling, rel=1e-12)
