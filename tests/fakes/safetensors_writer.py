"""Writes small safetensors files and Hugging Face checkpoint folders for tests."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

_DTYPES = {"float32": "F32", "float16": "F16", "int64": "I64", "uint8": "U8"}
Arrays = Mapping[str, npt.NDArray[np.generic]]


def safetensors_bytes(arrays: Arrays) -> bytes:
    """A file; uint16 arrays are bf16 bits."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, array in arrays.items():
        body = array.tobytes()
        dtype = "BF16" if array.dtype == np.uint16 else _DTYPES[array.dtype.name]
        offsets = [len(data), len(data) + len(body)]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": offsets}
        data += body
    return with_header(json.dumps(header).encode(), data)


def with_header(header: bytes, data: bytes = b"") -> bytes:
    """A file with any header."""
    return struct.pack("<Q", len(header)) + header + data


def llama_config(**changes: object) -> dict[str, object]:
    """config.json of the tiny Llama of `gguf_writer.llama_metadata`."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": 40,
        "max_position_embeddings": 128,
        "eos_token_id": 2,
        "torch_dtype": "float32",
        **changes,
    }


def write_checkpoint(folder: Path, arrays: Arrays, **config: object) -> str:
    """config.json and model.safetensors; gives the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(llama_config(**config)))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(arrays))
    return str(folder)
