"""Both formats give models the same tensors under the same names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from octavo.errors import ConfigError, StartupError
from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import StoredTensor
from octavo.weights.checkpoint import open_checkpoint
from tests.fakes.gguf_writer import FakeTensor, llama_metadata, llama_tensors, write_gguf
from tests.fakes.safetensors_writer import safetensors_bytes, write_checkpoint


def values(tensor: StoredTensor) -> npt.NDArray[np.float32]:
    """What a model sees of an F32 tensor."""
    array = np.frombuffer(tensor.data, np.float32).reshape(tensor.shape)
    if tensor.row_permutation is not None:
        array = array[tensor.row_permutation]
    return array + np.float32(tensor.value_offset)


def test_gguf_and_safetensors_of_one_model_are_equal(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    hf = {
        "model.embed_tokens.weight": random.standard_normal((40, 32), np.float32),
        "model.norm.weight": random.standard_normal(32, np.float32),
        "model.layers.1.self_attn.q_proj.weight": random.standard_normal((32, 32), np.float32),
        "model.layers.1.self_attn.q_proj.bias": random.standard_normal(32, np.float32),
        "model.layers.1.self_attn.k_proj.weight": random.standard_normal((16, 32), np.float32),
        "model.layers.1.self_attn.v_proj.weight": random.standard_normal((16, 32), np.float32),
        "model.layers.1.mlp.down_proj.weight": random.standard_normal((32, 64), np.float32),
    }

    def permuted(array: npt.NDArray[np.float32], num_heads: int) -> npt.NDArray[np.float32]:
        # llama.cpp, convert_hf_to_gguf.py, LlamaModel.permute
        shape = array.shape
        return array.reshape(num_heads, 2, 4, *shape[1:]).swapaxes(1, 2).reshape(shape)

    stored = {
        "token_embd.weight": hf["model.embed_tokens.weight"],
        "output_norm.weight": hf["model.norm.weight"],
        "blk.1.attn_q.weight": permuted(hf["model.layers.1.self_attn.q_proj.weight"], 4),
        "blk.1.attn_q.bias": permuted(hf["model.layers.1.self_attn.q_proj.bias"], 4),
        "blk.1.attn_k.weight": permuted(hf["model.layers.1.self_attn.k_proj.weight"], 2),
        "blk.1.attn_v.weight": hf["model.layers.1.self_attn.v_proj.weight"],
        "blk.1.ffn_down.weight": hf["model.layers.1.mlp.down_proj.weight"],
    }
    tensors = {name: FakeTensor(a.shape, data=a.tobytes()) for name, a in stored.items()}
    gguf = open_checkpoint(write_gguf(tmp_path / "m.gguf", llama_metadata(), tensors))
    safetensors = open_checkpoint(write_checkpoint(tmp_path / "hf", hf))
    assert set(gguf.tensor_names) == set(safetensors.tensor_names) == set(hf)
    for name, array in hf.items():
        np.testing.assert_array_equal(values(gguf.get(name)), array)
        np.testing.assert_array_equal(values(safetensors.get(name)), array)


def test_quantised_tensors_are_handed_out_as_stored(tmp_path: Path) -> None:
    tensors = llama_tensors()
    tensors["blk.0.attn_q.weight"] = FakeTensor((32, 32), GGMLType.Q4_1, bytes(range(40)) * 16)
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", llama_metadata(), tensors))
    tensor = checkpoint.get("model.layers.0.self_attn.q_proj.weight")
    assert (tensor.type, tensor.shape) == (GGMLType.Q4_1, (32, 32))
    assert bytes(tensor.data) == bytes(range(40)) * 16
    assert tensor.row_permutation is not None
    assert tensor.row_permutation[:8].tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    checkpoint.release(tensor)
    assert bytes(tensor.data[:40]) == bytes(range(40))
    checkpoint.close()


def test_a_tensor_no_rule_knows_is_refused_and_rope_factors_are_not(tmp_path: Path) -> None:
    factors = FakeTensor((4,), data=np.ones(4, np.float32).tobytes())
    tensors = {**llama_tensors(), "rope_freqs.weight": factors}
    path = tmp_path / "m.gguf"
    names = set(open_checkpoint(write_gguf(path, llama_metadata(), tensors)).tensor_names)
    assert not any("rope" in name for name in names)
    tensors["blk.0.attn_q_norm.weight"] = FakeTensor((8,))
    with pytest.raises(ConfigError, match=r"tensor blk\.0\.attn_q_norm\.weight is not part of"):
        open_checkpoint(write_gguf(path, llama_metadata(), tensors))


def test_a_missing_tensor_is_one_sentence(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", llama_metadata(), llama_tensors())
    checkpoint = open_checkpoint(path)
    for name, stored in {
        "lm_head.weight": "output.weight",
        "model.layers.7.mlp.down_proj.weight": "blk.7.ffn_down.weight",
        "something.else": "something.else",
    }.items():
        with pytest.raises(StartupError, match=f"lacks the tensor {stored},"):
            checkpoint.get(name)


def test_rows_that_do_not_fit_the_heads_are_refused(tmp_path: Path) -> None:
    tensors = {**llama_tensors(), "blk.0.attn_q.weight": FakeTensor((24, 32))}
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", llama_metadata(), tensors))
    with pytest.raises(StartupError, match="has 24 rows where 4 heads of 8 are expected"):
        checkpoint.get("model.layers.0.self_attn.q_proj.weight")


def test_types_no_model_reads_may_lie_in_a_safetensors_file(tmp_path: Path) -> None:
    arrays = {"a": np.ones(2, np.float32), "ids": np.arange(3)}
    checkpoint = open_checkpoint(write_checkpoint(tmp_path / "hf", arrays))
    assert values(checkpoint.get("a")).tolist() == [1, 1]
    with pytest.raises(ConfigError, match="tensor ids has type I64, which is not supported"):
        checkpoint.get("ids")


def test_shards_of_a_folder_are_joined_and_a_tensor_in_two_is_refused(tmp_path: Path) -> None:
    one = np.ones(2, np.float32)
    names = ["model-1.safetensors", "model-2.safetensors"]
    index = {"weight_map": {"a": names[0], "b": names[1]}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / names[0]).write_bytes(safetensors_bytes({"a": one}))
    (tmp_path / names[1]).write_bytes(safetensors_bytes({"b": one * 2}))
    assert values(open_checkpoint(str(tmp_path)).get("b")).tolist() == [2, 2]
    (tmp_path / names[1]).write_bytes(safetensors_bytes({"a": one}))
    with pytest.raises(StartupError, match="has the tensor a in two files"):
        open_checkpoint(str(tmp_path))
