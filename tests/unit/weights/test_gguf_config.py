"""Metadata of a GGUF file becomes the keys of config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.errors import ConfigError, StartupError
from octavo.weights.gguf import GGUFFile
from octavo.weights.gguf_config import gguf_config, gguf_eos_token_ids
from tests.fakes.gguf_writer import (
    U32,
    U64,
    FakeTensor,
    Typed,
    llama_metadata,
    llama_tensors,
    write_gguf,
)


def config_of(folder: Path, *, more: dict[str, FakeTensor] | None = None, **changes: object) -> Any:
    tensors = {**llama_tensors(), **(more or {})}
    gguf = GGUFFile(write_gguf(folder / "m.gguf", llama_metadata(**changes), tensors))
    return gguf_config(gguf, gguf.tensors)


def test_a_llama_has_the_keys_models_read(tmp_path: Path) -> None:
    assert config_of(tmp_path) == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 40,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": 1e-5,  # and not 9.99999974e-06
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "max_position_embeddings": 128,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": None,
        "eos_token_id": 2,
        "hidden_act": "silu",
    }


def test_tensors_tell_what_the_metadata_does_not(tmp_path: Path) -> None:
    more = {"output.weight": FakeTensor((40, 32)), "blk.0.attn_q.bias": FakeTensor((32,))}
    config = config_of(tmp_path, more=more)
    assert config["tie_word_embeddings"] is False
    assert config["attention_bias"] is True


def test_head_sizes_come_from_the_metadata_where_it_has_them(tmp_path: Path) -> None:
    config = config_of(
        tmp_path,
        llama__attention__key_length=16,
        llama__attention__value_length=16,
        llama__rope__dimension_count=8,
        llama__attention__head_count_kv=Typed(U32, [2, 2], is_array=True),
    )
    assert config["head_dim"] == 16
    assert config["partial_rotary_factor"] == 0.5
    assert config["num_key_value_heads"] == 2


def test_rope_scaling_kinds(tmp_path: Path) -> None:
    linear = config_of(
        tmp_path, llama__rope__scaling__type="linear", llama__rope__scaling__factor=4.0
    )
    assert linear["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
    yarn = config_of(
        tmp_path,
        llama__rope__scaling__type="yarn",
        llama__rope__scaling__factor=4.0,
        llama__rope__scaling__original_context_length=32,
    )
    assert yarn["rope_scaling"] == {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    assert config_of(tmp_path, llama__rope__scaling__type="none")["rope_scaling"] is None
    with pytest.raises(ConfigError, match="rope scaling of type 'su'"):
        config_of(tmp_path, llama__rope__scaling__type="su")


def llama3_factors(theta: float, head_dim: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """As transformers computes them: modeling_rope_utils._compute_llama3_parameters."""
    inv_freq = 1.0 / theta ** (np.arange(0, head_dim, 2) / head_dim)
    factor, low, high, window = 8.0, 1.0, 4.0, 8192
    wave = 2 * np.pi / inv_freq
    scaled = np.where(wave > window / low, inv_freq / factor, inv_freq)
    smooth = (window / wave - low) / (high - low)
    ramp = (1 - smooth) * scaled / factor + smooth * scaled
    is_between = ~(wave < window / high) & ~(wave > window / low)
    return (inv_freq / np.where(is_between, ramp, scaled)).astype(np.float32)


def test_llama3_scaling_is_recognised_by_its_factors(tmp_path: Path) -> None:
    factors = llama3_factors(500000.0, 128)
    config = config_of(
        tmp_path,
        more={"rope_freqs.weight": FakeTensor((64,), data=factors.tobytes())},
        llama__rope__freq_base=500000.0,
        llama__attention__key_length=128,
        llama__attention__value_length=128,
    )
    assert config["rope_scaling"] == {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


def test_other_factors_are_longrope(tmp_path: Path) -> None:
    data = np.array([1, 1.5, 2, 4], np.float32).tobytes()
    scaling = config_of(tmp_path, more={"rope_freqs.weight": FakeTensor((4,), data=data)})[
        "rope_scaling"
    ]
    assert scaling["rope_type"] == "longrope"
    assert scaling["long_factor"] == [1, 1.5, 2, 4]
    with pytest.raises(StartupError, match="one factor per frequency"):
        config_of(tmp_path, more={"rope_freqs.weight": FakeTensor((3,), data=b"\0" * 12)})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"general__architecture": "mamba"}, "has the architecture 'mamba', which is not"),
        ({"general__architecture": None}, "it lacks general.architecture"),
        ({"general__type": "adapter"}, "holds something of type 'adapter', not a model"),
        ({"llama__expert_count": 8}, "mixture-of-experts"),
        ({"llama__block_count": None}, "it lacks llama.block_count"),
        ({"llama__block_count": "two"}, "block_count is not a list"),
        ({"llama__attention__head_count": 0}, "head_count is 0"),
        ({"llama__attention__head_count": 64}, "its attention heads have the size 0"),
        ({"llama__context_length": Typed(U64, 2**63)}, f"context_length is {2**63}"),
        ({"llama__rope__freq_base": float("nan")}, "freq_base is nan"),
        ({"llama__rope__freq_base": -5.0}, r"freq_base is -5\.0"),
        ({"llama__attention__layer_norm_rms_epsilon": float("inf")}, "epsilon is inf"),
        ({"llama__attention__head_count_kv": 3}, "4 query heads do not divide by 3"),
        ({"llama__attention__head_count_kv": [2, 1]}, "layers with different"),
        ({"llama__attention__value_length": 4}, "value heads of 4"),
        ({"llama__attention__layer_norm_rms_epsilon": None}, "it lacks llama.attention.layer"),
    ],
)
def test_what_cannot_be_served_is_one_sentence(
    tmp_path: Path, changes: dict[str, object], expected: str
) -> None:
    with pytest.raises(StartupError, match=expected) as caught:
        config_of(tmp_path, **changes)
    assert str(tmp_path / "m.gguf") in caught.value.message


def test_end_tokens_are_collected_without_duplicates(tmp_path: Path) -> None:
    metadata = {
        "tokenizer.ggml.eos_token_id": 7,
        "tokenizer.ggml.eot_token_id": 9,
        "tokenizer.ggml.eom_token_id": 2**32 - 1,  # how some files write "none"
    }
    gguf = GGUFFile(write_gguf(tmp_path / "m.gguf", metadata))
    assert gguf_eos_token_ids(gguf, 10) == [7, 9]
    assert gguf_eos_token_ids(gguf, 9) == [7]


def test_tokens_that_end_a_turn_are_found_by_their_text(tmp_path: Path) -> None:
    tokens = ["a", "<eos>", "x<end_of_turn>", "<end_of_turn>", "<|im_end|>"]
    metadata = {"tokenizer.ggml.eos_token_id": 1, "tokenizer.ggml.tokens": tokens}
    gguf = GGUFFile(write_gguf(tmp_path / "m.gguf", metadata))
    assert gguf_eos_token_ids(gguf, 5) == [1, 3, 4]


def renamed(architecture: str, changes: dict[str, object]) -> dict[str, object]:
    """Metadata of a tiny model of another architecture."""
    metadata = llama_metadata(general__architecture=architecture)
    metadata = {key.replace("llama.", f"{architecture}."): v for key, v in metadata.items()}
    return metadata | {f"{architecture}.{key}": value for key, value in changes.items()}


def other_config(folder: Path, architecture: str, **changes: object) -> Any:
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    metadata = renamed(architecture, dotted)
    gguf = GGUFFile(write_gguf(folder / "m.gguf", metadata, llama_tensors()))
    return gguf_config(gguf, gguf.tensors)


def test_a_llama_with_a_window_is_a_mistral(tmp_path: Path) -> None:
    config = config_of(tmp_path, llama__attention__sliding_window=16)
    assert config["architectures"] == ["MistralForCausalLM"]
    assert config["sliding_window"] == 16


@pytest.mark.parametrize(
    ("name", "hf_name"), [("qwen2", "Qwen2ForCausalLM"), ("qwen3", "Qwen3ForCausalLM")]
)
def test_qwen_has_the_keys_models_read(tmp_path: Path, name: str, hf_name: str) -> None:
    config = other_config(tmp_path, name)
    assert config["architectures"] == [hf_name]
    assert config["use_sliding_window"] is False
    assert config["rope_theta"] == 10000.0


def test_an_old_file_of_gemma_3_has_what_it_leaves_out(tmp_path: Path) -> None:
    config = other_config(tmp_path, "gemma3", attention__sliding_window=512)
    assert config["architectures"] == ["Gemma3ForCausalLM"]
    assert config["rope_local_base_freq"] == 10000.0
    assert config["query_pre_attn_scalar"] == config["head_dim"] == 8
    assert (config["sliding_window"], config["sliding_window_pattern"]) == (512, 6)
    assert config["final_logit_softcapping"] is None
    assert "layer_types" not in config


def test_a_new_file_of_gemma_3_says_which_layers_slide(tmp_path: Path) -> None:
    config = other_config(
        tmp_path,
        "gemma3",
        attention__sliding_window=512,
        attention__sliding_window_pattern=[True, False],
        rope__freq_base_swa=5000.0,
        rope__scaling__type="linear",
        rope__scaling__factor=8.0,
        final_logit_softcapping=30.0,
    )
    assert config["layer_types"] == ["sliding_attention", "full_attention"]
    assert config["rope_local_base_freq"] == 5000.0
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 8.0}
    assert config["final_logit_softcapping"] == 30.0
    config = other_config(tmp_path, "gemma3", attention__sliding_window_pattern=4)
    assert config["sliding_window_pattern"] == 4


def test_gemma_3_27b_scales_its_scores_by_another_size(tmp_path: Path) -> None:
    config = other_config(
        tmp_path,
        "gemma3",
        block_count=62,
        embedding_length=5376,
        attention__head_count=32,
        attention__key_length=128,
        attention__value_length=128,
    )
    assert config["query_pre_attn_scalar"] == 168
