"""Qwen2ForCausalLM: biases and windows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from octavo.errors import ConfigError
from octavo.models.qwen2 import Qwen2ForCausalLM
from tests.fakes.ops import FakeOps, FakeWeights

TINY: dict[str, object] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "sliding_window": 16,
}


def made(**changes: object) -> tuple[Sequence[int | None], FakeWeights]:
    weights = FakeWeights()
    model = Qwen2ForCausalLM(TINY | changes, weights, FakeOps())  # type: ignore[arg-type]
    return [layer.sliding_window for layer in model.kv_layers], weights


def test_query_key_and_value_have_biases_and_nothing_else() -> None:
    biases = {name for name in made()[1].asked if name.endswith(".bias")}
    assert biases == {
        f"model.layers.{layer}.self_attn.{part}_proj.bias" for layer in range(3) for part in "qkv"
    }


def test_a_window_is_not_used_unless_the_configuration_says_so() -> None:
    assert made()[0] == [None] * 3
    assert made(use_sliding_window=False)[0] == [None] * 3


def test_layers_from_max_window_layers_on_have_the_window() -> None:
    used = {"use_sliding_window": True}
    assert made(**used)[0] == [None] * 3  # from layer 28 on
    assert made(**used, max_window_layers=1)[0] == [None, 16, 16]
    assert made(**used, max_window_layers=0)[0] == [16] * 3
    assert made(**used, max_window_layers=0, sliding_window=None)[0] == [None] * 3


def test_layer_types_go_first() -> None:
    kinds = ["sliding_attention", "full_attention", "full_attention"]
    windows, _ = made(use_sliding_window=True, max_window_layers=2, layer_types=kinds)
    assert windows == [16, None, None]


def test_odd_keys_are_named() -> None:
    with pytest.raises(ConfigError, match=r"use_sliding_window=1.*true or false"):
        made(use_sliding_window=1)
    with pytest.raises(ConfigError, match=r"max_window_layers=-1.*at least 0"):
        made(use_sliding_window=True, max_window_layers=-1)
