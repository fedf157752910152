"""Qwen3ForCausalLM: norms over heads between projection and rotation."""

from __future__ import annotations

from octavo.models.qwen3 import Qwen3ForCausalLM
from tests.fakes.ops import FakeOps, FakeWeights

TINY: dict[str, object] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


def test_heads_are_normed_before_they_are_rotated() -> None:
    ops = FakeOps()
    Qwen3ForCausalLM(TINY | {"num_hidden_layers": 2}, FakeWeights(), ops).forward()  # type: ignore[arg-type]
    start = ["embed", "rms_norm", *["linear"] * 3, *["rms_norm"] * 2, *["rope"] * 2, "kv_write"]
    assert ops.called[: len(start)] == start


def test_norms_are_as_wide_as_a_head_and_projections_have_no_bias() -> None:
    weights = FakeWeights()
    Qwen3ForCausalLM(TINY, weights, FakeOps())  # type: ignore[arg-type]
    assert weights.asked["model.layers.0.self_attn.q_norm.weight"] == (16,)
    assert weights.asked["model.layers.0.self_attn.k_norm.weight"] == (16,)
    assert weights.asked["model.layers.0.self_attn.q_proj.weight"] == (64, 32)
    assert not any(name.endswith(".bias") for name in weights.asked)


def test_biases_are_asked_for_where_the_configuration_says() -> None:
    weights = FakeWeights()
    Qwen3ForCausalLM(TINY | {"attention_bias": True}, weights, FakeOps())  # type: ignore[arg-type]
    biases = [name for name in weights.asked if name.endswith(".bias")]
    assert biases == [f"model.layers.0.self_attn.{part}_proj.bias" for part in "qkvo"]
