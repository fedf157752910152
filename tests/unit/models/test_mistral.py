"""MistralForCausalLM: windows."""

from __future__ import annotations

import pytest

from octavo.models.mistral import MistralForCausalLM
from tests.fakes.ops import FakeOps, FakeWeights

TINY: dict[str, object] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.mark.parametrize("window", [None, 16])
def test_all_layers_have_the_window_that_the_configuration_gives(window: int | None) -> None:
    weights = FakeWeights()
    config = TINY | {"sliding_window": window}
    model = MistralForCausalLM(config, weights, FakeOps())  # type: ignore[arg-type]
    assert [layer.sliding_window for layer in model.kv_layers] == [window, window]
    assert not any(name.endswith(".bias") for name in weights.asked)
