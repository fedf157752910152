"""Inverse frequencies of rotary embeddings (values against transformers: tests/conformance)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.errors import ConfigError
from octavo.models.rope import Rope, rope_from_config


def rope(**hf_config: object) -> Rope:
    return rope_from_config(hf_config, head_dim=64, max_position_embeddings=2048)


def test_default_frequencies_fall_from_one_by_powers_of_theta() -> None:
    made = rope(rope_theta=10000.0)
    expected = 10000.0 ** (-np.arange(32) / 32)
    np.testing.assert_allclose(made.inv_freq, expected, rtol=1e-6)
    assert made.inv_freq.dtype == np.float32
    assert (made.rotary_dim, made.scaling) == (64, 1.0)


def test_linear_scaling_divides_all_frequencies() -> None:
    scaled = rope(rope_scaling={"type": "linear", "factor": 4.0})
    np.testing.assert_allclose(scaled.inv_freq, rope().inv_freq / 4, rtol=1e-6)


def test_new_and_old_spelling_give_the_same() -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    }
    old = rope(rope_theta=500000.0, rope_scaling=scaling)
    new = rope(rope_parameters={**scaling, "rope_theta": 500000.0})
    np.testing.assert_array_equal(old.inv_freq, new.inv_freq)


def test_a_part_of_the_head_may_rotate() -> None:
    assert rope(partial_rotary_factor=0.5).rotary_dim == 32


def test_llama3_keeps_high_frequencies_and_divides_low_ones() -> None:
    made = rope(
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 512,
        }
    ).inv_freq
    plain = rope().inv_freq
    assert made[0] == plain[0]
    assert made[-1] == plain[-1] / 8


def test_longrope_with_one_set_of_factors_divides_each_frequency() -> None:
    factors = [1.0 + n for n in range(32)]
    made = rope(
        rope_scaling={
            "rope_type": "longrope",
            "short_factor": factors,
            "long_factor": factors,
            "attention_factor": 1.1,
        }
    )
    expected = rope().inv_freq / np.array(factors, np.float32)
    np.testing.assert_allclose(made.inv_freq, expected, rtol=1e-6)
    assert made.scaling == 1.1


def test_longrope_that_depends_on_the_prompt_is_refused() -> None:
    scaling = {"rope_type": "longrope", "short_factor": [1.0] * 32, "long_factor": [2.0] * 32}
    with pytest.raises(ConfigError, match="longrope with different factors"):
        rope(rope_scaling=scaling)


def test_an_unknown_type_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"rope_type='spiral'.*default, linear.*yarn"):
        rope(rope_scaling={"rope_type": "spiral"})


@pytest.mark.parametrize("factor", [None, 0, -1.0, "8", True])
def test_a_factor_that_is_no_positive_number_is_named(factor: object) -> None:
    with pytest.raises(ConfigError, match="factor="):
        rope(rope_scaling={"rope_type": "linear", "factor": factor})


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"rope_theta": 1.0}, "rope_theta=1.0.*above 1"),
        ({"rope_theta": 1e300}, "rope_theta=1e.300"),
        ({"rope_theta": float("inf")}, "rope_theta=inf"),
        ({"rope_theta": 10**400}, "rope_theta=1000"),
        ({"partial_rotary_factor": 1.5}, "rotates 96 of 64"),
        ({"partial_rotary_factor": 0.02}, "rotates 1 of 64"),
        ({"partial_rotary_factor": 0.33}, "rotates 21 of 64"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 0.5}}, "factor=0.5"),
        (
            {
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 4.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8192,
                }
            },
            "high_freq_factor=4",
        ),
    ],
)
def test_numbers_without_meaning_are_named(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        rope(**config)


def test_parameters_must_be_a_table() -> None:
    with pytest.raises(ConfigError, match="rope_scaling='yarn'"):
        rope(rope_scaling="yarn")
