"""Facts of a checkpoint come from headers and JSON files."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import ConfigError, OctavoError, StartupError
from octavo.weights.facts import read_facts
from tests.fakes.gguf_writer import gguf_bytes, llama_metadata, llama_tensors, num_bytes, write_gguf
from tests.fakes.safetensors_writer import llama_config, write_checkpoint

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "rope_type", "factor", "x"]), inner, max_size=3)
    ),
    max_leaves=5,
)
WEIGHTS = {"model.norm.weight": np.ones(32, np.float32)}


def test_facts_of_a_gguf_file(tmp_path: Path) -> None:
    tensors = llama_tensors()
    facts = read_facts(write_gguf(tmp_path / "m.gguf", llama_metadata(), tensors))
    assert (facts.format, facts.architecture) == ("gguf", "LlamaForCausalLM")
    assert (facts.vocab_size, facts.max_position_embeddings) == (40, 128)
    assert facts.weight_bytes == sum(num_bytes(tensor) for tensor in tensors.values())
    assert facts.eos_token_ids == [2]
    assert facts.default_name == "Tiny"
    assert facts.torch_dtype is None


def test_facts_of_a_folder(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny", WEIGHTS, torch_dtype="bfloat16")
    generation = {"eos_token_id": [2, 5], "temperature": 0.6}
    Path(folder, "generation_config.json").write_text(json.dumps(generation))
    facts = read_facts(folder)
    assert (facts.format, facts.architecture) == ("safetensors", "LlamaForCausalLM")
    assert facts.weight_bytes == 128
    assert facts.eos_token_ids == [2, 5]
    assert facts.generation_config == generation
    assert facts.torch_dtype == "bfloat16"
    assert facts.default_name == "tiny"
    assert facts.hf_config["head_dim"] == 8


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}},
            {"rope_theta": 5.0, "rope_scaling": None},
        ),
        (
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5.0}},
            {"rope_theta": 5.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 2.0}},
        ),
        ({"torch_dtype": None, "dtype": "bfloat16"}, {"dtype": "bfloat16"}),
        ({"num_key_value_heads": None}, {"num_key_value_heads": 4, "head_dim": 8}),
    ],
)
def test_spellings_of_several_years_become_one(
    tmp_path: Path, config: dict[str, object], expected: dict[str, object]
) -> None:
    facts = read_facts(write_checkpoint(tmp_path / "hf", WEIGHTS, **config))
    assert {key: facts.hf_config[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"quantization_config": {"quant_method": "gptq"}}, "is quantised with 'gptq'"),
        ({"architectures": []}, "does not say which architecture"),
        ({"vocab_size": "many"}, "vocab_size is 'many', not a positive"),
        ({"max_position_embeddings": None}, "max_position_embeddings is None"),
    ],
)
def test_what_cannot_be_served_is_one_sentence(
    tmp_path: Path, config: dict[str, object], expected: str
) -> None:
    with pytest.raises(StartupError, match=expected):
        read_facts(write_checkpoint(tmp_path / "hf", WEIGHTS, **config))


def test_a_folder_without_config_and_damaged_json_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        read_facts(str(tmp_path))
    folder = write_checkpoint(tmp_path / "hf", WEIGHTS)
    Path(folder, "generation_config.json").write_text("{")
    with pytest.raises(StartupError, match=r"generation_config\.json is not valid JSON"):
        read_facts(folder)
    Path(folder, "config.json").write_text('"text"')
    with pytest.raises(StartupError, match=r"config\.json is not a JSON object"):
        read_facts(folder)


def test_reading_facts_loads_no_heavy_library() -> None:
    code = (
        "import sys, octavo.weights.facts, octavo.weights.hub; "
        "print(sorted({'numpy', 'torch', 'huggingface_hub', 'tokenizers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@settings(max_examples=250, deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 2200), st.binary(min_size=1, max_size=8)), min_size=1, max_size=3
    )
)
def test_changed_bytes_of_a_gguf_file_never_end_in_another_error(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, bytes]]
) -> None:
    data = bytearray(gguf_bytes(llama_metadata(), llama_tensors()))
    for place, replacement in changes:
        data[place : place + len(replacement)] = replacement
    path = tmp_path_factory.mktemp("fuzz") / "m.gguf"
    path.write_bytes(data)
    try:
        msgspec.msgpack.encode(read_facts(str(path)))  # facts cross a process boundary
    except OctavoError:
        pass  # the one kind of error there may be
    finally:
        path.unlink()


@settings(max_examples=150, deadline=None)
@given(key=st.sampled_from(sorted(llama_config())), value=JSON_VALUES)
def test_any_value_in_a_config_never_ends_in_another_error(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: object
) -> None:
    folder = write_checkpoint(tmp_path_factory.mktemp("fuzz"), WEIGHTS, **{key: value})
    with contextlib.suppress(OctavoError):  # the one kind of error there may be
        msgspec.msgpack.encode(read_facts(folder))
