"""Gemma3ForCausalLM: windows, rotary bases, norms (values against transformers: conformance)."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.errors import ConfigError
from octavo.models.gemma3 import Gemma3ForCausalLM
from tests.fakes.ops import FakeOps, FakeWeights

TINY: dict[str, object] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "sliding_window": 512,
}
SLIDING, FULL = "sliding_attention", "full_attention"


class CallsOps(FakeOps):
    """Keeps the arguments of every call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.constants: list[Any] = []

    def constant(self, values: Any) -> str:
        self.constants.append(values)
        return f"constant {len(self.constants) - 1}"

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)

        def op(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, {"args": args, **kwargs}))
            return call(*args, **kwargs)

        return op

    def of(self, name: str) -> list[dict[str, Any]]:
        return [arguments for called, arguments in self.calls if called == name]


def recorded(**changes: object) -> tuple[Gemma3ForCausalLM, CallsOps, FakeWeights]:
    ops, weights = CallsOps(), FakeWeights()
    model = Gemma3ForCausalLM(TINY | changes, weights, ops)  # type: ignore[arg-type]
    model.logits(model.forward())
    return model, ops, weights


def windows(**changes: object) -> list[int | None]:
    return [layer.sliding_window for layer in recorded(**changes)[0].kv_layers]


def test_every_sixth_layer_sees_everything() -> None:
    assert windows() == [512] * 5 + [None, 512]


def test_another_pattern_or_a_list_of_kinds_is_followed() -> None:
    assert windows(sliding_window_pattern=2) == [512, None] * 3 + [512]
    kinds = [FULL, *[SLIDING] * 6]
    assert windows(layer_types=kinds, sliding_window_pattern=2) == [None] + [512] * 6


def test_without_a_window_all_layers_see_everything() -> None:
    assert windows(sliding_window=None) == [None] * 7


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_theta": 500000.0, "rope_local_base_freq": 5000.0},
        {
            "rope_parameters": {
                FULL: {"rope_type": "default", "rope_theta": 500000.0},
                SLIDING: {"rope_type": "default", "rope_theta": 5000.0},
            }
        },
    ],
)
def test_sliding_layers_have_a_rotary_base_of_their_own(changes: dict[str, object]) -> None:
    _, ops, _ = recorded(**changes)
    base = {f"constant {n}": values[1] ** -8 for n, values in enumerate(ops.constants)}
    used = [base[call["args"][1]] for call in ops.of("rope")[::2]]  # of queries
    expected = [5000.0] * 5 + [500000.0, 5000.0]
    assert used == pytest.approx(expected, rel=1e-4)


def test_only_the_global_base_is_scaled() -> None:
    scaling = {"rope_type": "linear", "factor": 8.0}
    _, ops, _ = recorded(rope_scaling=scaling)
    assert sorted(values[0] for values in ops.constants) == [0.125, 1.0]


def test_embeddings_are_scaled_and_norms_add_one() -> None:
    _, ops, _ = recorded(query_pre_attn_scalar=64)
    assert ops.of("embed")[0]["scale"] == 32**0.5
    norms = ops.of("rms_norm")
    assert {norm["offset"] for norm in norms} == {1.0}
    assert [norm["num_heads"] for norm in norms[:6]] == [1, 4, 1, 1, 1, 1]
    assert len(norms) == 7 * 6 + 1
    assert ops.of("attention")[0]["scale"] == 0.125


def test_logits_are_capped_where_the_configuration_says() -> None:
    assert recorded()[1].of("soft_cap") == []
    _, ops, _ = recorded(final_logit_softcapping=30.0, attn_logit_softcapping=50.0)
    assert ops.of("soft_cap")[0]["args"][1] == 30.0
    assert ops.of("attention")[0]["soft_cap"] == 50.0


def test_the_embedding_is_the_head_unless_it_is_said_not_to_be() -> None:
    assert "lm_head.weight" not in recorded()[2].asked
    assert "lm_head.weight" in recorded(tie_word_embeddings=False)[2].asked


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"layer_types": [SLIDING]}, "layer_types=.*a list of 7 kinds"),
        ({"layer_types": "sliding"}, "layer_types='sliding'"),
        ({"layer_types": ["chunked_attention"] * 7}, "layer_types='chunked_attention'"),
        ({"layer_types": [SLIDING] * 7, "sliding_window": None}, "sliding_window=None"),
        ({"sliding_window": 0}, "sliding_window=0.*at least 1"),
        ({"sliding_window": 2**31}, "sliding_window=2147483648.*at most"),
        ({"sliding_window_pattern": 0}, "sliding_window_pattern=0"),
        ({"query_pre_attn_scalar": 0}, "query_pre_attn_scalar=0"),
        ({"final_logit_softcapping": -1}, "final_logit_softcapping=-1"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention=True.*causal"),
        ({"rope_local_base_freq": "x"}, "rope_theta='x'"),
        ({"rope_parameters": {FULL: 7}}, "rope_parameters=7"),
    ],
)
def test_odd_keys_are_named(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        recorded(**changes)
