"""LlamaForCausalLM: configuration, weights it asks for, operations it calls."""

from __future__ import annotations

import pytest

from octavo.errors import ConfigError
from octavo.models.llama import LlamaForCausalLM
from tests.fakes.ops import FakeOps, FakeWeights

TINY = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
}


def names_of(**changes: object) -> dict[str, tuple[int, ...]]:
    weights = FakeWeights()
    LlamaForCausalLM(TINY | changes, weights, FakeOps())
    return weights.asked


def test_it_asks_for_weights_by_hugging_faces_names_and_shapes() -> None:
    asked = names_of()
    assert asked["model.embed_tokens.weight"] == (50, 32)
    assert asked["model.layers.1.self_attn.q_proj.weight"] == (32, 32)
    assert asked["model.layers.1.self_attn.k_proj.weight"] == (16, 32)
    assert asked["model.layers.1.self_attn.o_proj.weight"] == (32, 32)
    assert asked["model.layers.0.mlp.gate_proj.weight"] == (64, 32)
    assert asked["model.layers.0.mlp.down_proj.weight"] == (32, 64)
    assert asked["model.layers.0.input_layernorm.weight"] == (32,)
    assert asked["model.norm.weight"] == (32,)
    assert asked["lm_head.weight"] == (50, 32)
    assert len(asked) == 3 + 2 * 9


def test_a_tied_embedding_is_the_head() -> None:
    assert "lm_head.weight" not in names_of(tie_word_embeddings=True)


def test_biases_are_asked_for_where_the_configuration_says() -> None:
    biases = {name for name in names_of(attention_bias=True) if name.endswith(".bias")}
    assert biases == {
        f"model.layers.{layer}.self_attn.{part}_proj.bias" for layer in (0, 1) for part in "qkvo"
    }
    assert "model.layers.0.mlp.up_proj.bias" in names_of(mlp_bias=True)


def test_a_head_size_of_its_own_shapes_the_projections() -> None:
    asked = names_of(head_dim=16)
    assert asked["model.layers.0.self_attn.q_proj.weight"] == (64, 32)
    assert asked["model.layers.0.self_attn.o_proj.weight"] == (32, 64)


def test_each_layer_has_a_cache_of_its_own() -> None:
    layers = LlamaForCausalLM(TINY, FakeWeights(), FakeOps()).kv_layers
    assert [(layer.layer, layer.num_kv_heads, layer.k_head_dim) for layer in layers] == [
        (0, 2, 8),
        (1, 2, 8),
    ]


def test_a_layer_is_attention_and_feed_forward_between_norms() -> None:
    ops = FakeOps()
    model = LlamaForCausalLM(TINY | {"num_hidden_layers": 1}, FakeWeights(), ops)
    model.logits(model.forward())
    assert ops.called == [
        "embed",
        "select_rows",
        "rms_norm",
        *["linear"] * 3,
        *["rope"] * 2,
        "kv_write",
        "attention",
        "select_rows",
        "linear",
        "add",
        "rms_norm",
        *["linear"] * 2,
        "act_mul",
        "linear",
        "add",
        "logit_rows",
        "rms_norm",
        "lm_head",
    ]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"hidden_size": None}, "has no hidden_size, which LlamaForCausalLM needs"),
        ({"num_hidden_layers": 0}, "num_hidden_layers=0.*at least 1"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers='2'"),
        ({"num_hidden_layers": True}, "num_hidden_layers=True"),
        ({"num_key_value_heads": 3}, "num_key_value_heads=3.*divisor of num_attention_heads=4"),
        ({"hidden_size": 30}, "hidden_size=30.*multiple of 4 heads"),
        ({"head_dim": 7}, "head_dim=7.*even number of at most 1024"),
        ({"hidden_size": 2**33}, "head_dim=2147483648.*even number"),
        ({"hidden_act": "swiglu9"}, "hidden_act='swiglu9'.*silu"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps=nan"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings='yes'.*true or false"),
    ],
)
def test_odd_keys_are_named(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        LlamaForCausalLM(TINY | changes, FakeWeights(), FakeOps())
