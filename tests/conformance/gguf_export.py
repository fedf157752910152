"""A transformers model as a GGUF file, as llama.cpp's converter would write it.

Names of tensors are the `gguf` package's. Types that it cannot quantise to get random bytes, which
the model's weights then are; the model is changed to what the file holds in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import torch
from gguf.quants import dequantize, quantize
from transformers import PreTrainedModel

from octavo.ops.ggml_type import GGMLType
from tests.fakes.gguf_writer import FakeTensor, write_gguf
from tests.fakes.memory_checkpoint import random_tensor

F32 = npt.NDArray[np.float32]
ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3",
    "gemma3_text": "gemma3",
}  # fmt: skip


def write_model(path: Path, model: PreTrainedModel, kinds: Mapping[str, GGMLType]) -> None:
    """Writes the file and gives the model the file's weights.

    Args:
        kinds: types of matrices by the ends of their names in the file; "" for all others.
    """
    config = model.config
    architecture = ARCHITECTURES[config.model_type]
    number = next(n for n, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    rng = np.random.default_rng(0)
    tensors: dict[str, FakeTensor] = {}
    for name, parameter in model.named_parameters():
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None, name
        part = name.split(".")[-2]
        num_heads = heads.get(part) if architecture == "llama" else None
        values: F32 = parameter.detach().numpy()
        offset = 1.0 if architecture == "gemma3" and name.endswith("norm.weight") else 0.0
        values = _interleaved(values, num_heads) + np.float32(offset)
        kind = GGMLType.F32 if values.ndim == 1 else _kind(stored, kinds)
        data, held = _stored(stored, values, kind, rng)
        tensors[stored] = FakeTensor(values.shape, type=kind, data=data)
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(_half_split(held - np.float32(offset), num_heads)))
    write_gguf(path, _metadata(model, architecture), tensors)


def _kind(stored: str, kinds: Mapping[str, GGMLType]) -> GGMLType:
    return next((kind for end, kind in kinds.items() if end and stored.endswith(end)), kinds[""])


def _stored(name: str, values: F32, kind: GGMLType, rng: np.random.Generator) -> tuple[bytes, F32]:
    """Bytes of a tensor, and what they hold."""
    if kind == GGMLType.F32:
        return values.tobytes(), values
    number = gguf.GGMLQuantizationType(kind)
    try:
        quantised = quantize(values, number)
    except NotImplementedError:
        data = bytes(random_tensor(name, values.shape, kind, rng).data)
        quantised = np.frombuffer(data, np.uint8).reshape(len(values), -1)
    return quantised.tobytes(), dequantize(quantised, number).reshape(values.shape)


def _interleaved(values: F32, num_heads: int | None) -> F32:
    """Rotary pairs as neighbours: LlamaModel.permute of the converter."""
    if num_heads is None:
        return values
    rows = values.reshape(num_heads, 2, -1, *values.shape[1:])
    return np.ascontiguousarray(rows.swapaxes(1, 2).reshape(values.shape))


def _half_split(values: F32, num_heads: int | None) -> F32:
    if num_heads is None:
        return values
    rows = values.reshape(num_heads, -1, 2, *values.shape[1:])
    return np.ascontiguousarray(rows.swapaxes(1, 2).reshape(values.shape))


def _metadata(model: PreTrainedModel, architecture: str) -> dict[str, object]:
    """The keys that the converter writes for a configuration."""
    config = model.config.to_dict()
    keys: dict[str, object] = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
    }
    if config.get("head_dim"):
        keys |= {f"attention.{kind}_length": config["head_dim"] for kind in ("key", "value")}
    if config["model_type"] == "mistral" and config["sliding_window"]:
        keys["attention.sliding_window"] = config["sliding_window"]
    rope = config["rope_parameters"]
    if architecture == "gemma3":
        keys |= _gemma3_keys(config)
        rope = rope["full_attention"]
    keys["rope.freq_base"] = rope["rope_theta"]
    if rope["rope_type"] != "default":
        keys |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": rope["factor"]}
    return {
        "general.architecture": architecture,
        **{f"{architecture}.{key}": value for key, value in keys.items()},
    }


def _gemma3_keys(config: Mapping[str, object]) -> dict[str, object]:
    """The newer ones only where older files would mean something else."""
    keys: dict[str, object] = {"attention.sliding_window": config["sliding_window"]}
    kinds, rope = config["layer_types"], config["rope_parameters"]
    assert isinstance(kinds, list)
    assert isinstance(rope, Mapping)
    is_sliding = [kind == "sliding_attention" for kind in kinds]
    if is_sliding != [bool((n + 1) % 6) for n in range(len(kinds))]:
        keys["attention.sliding_window_pattern"] = is_sliding
    if rope["sliding_attention"]["rope_theta"] != 10_000.0:
        keys["rope.freq_base_swa"] = rope["sliding_attention"]["rope_theta"]
    if config.get("final_logit_softcapping"):
        keys["final_logit_softcapping"] = config["final_logit_softcapping"]
    return keys
