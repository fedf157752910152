"""What a checkpoint says of itself, read from headers and JSON files alone.

Runs in: the API process, before the engine is configured. Owns: gathering `CheckpointFacts`.
Knows nothing of: flags, devices, tensor data.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from octavo.config.facts import CheckpointFacts
from octavo.errors import ConfigError, StartupError
from octavo.weights.gguf import GGUFFile, joined_tensors, open_shards
from octavo.weights.gguf_config import MAX_SIZE, gguf_config, gguf_eos_token_ids
from octavo.weights.hf_config import read_hf_config
from octavo.weights.json_file import read_json_object
from octavo.weights.safetensors import SafetensorsFile, safetensors_paths
from octavo.wording import shown

GENERATION_CONFIG_NAME = "generation_config.json"


def read_facts(
    path: str, *, check_architecture: Callable[[str], None] = lambda name: None
) -> CheckpointFacts:
    """Facts of a GGUF file or of a folder with config.json and safetensors.

    Args:
        path: of the file or folder.
        check_architecture: raises for an architecture that is not supported; asked before the
            sizes are read, since other architectures keep them elsewhere.

    Raises:
        ConfigError: missing, or something that is not supported.
        StartupError: damaged.
    """
    read = _folder_facts if os.path.isdir(path) else _gguf_facts
    return read(path, check_architecture)


def _gguf_facts(path: str, check_architecture: Callable[[str], None]) -> CheckpointFacts:
    first = GGUFFile(path)
    shards = open_shards(first)
    tensors = joined_tensors(shards)
    config = gguf_config(first, tensors)
    check_architecture(config["architectures"][0])
    tokens = first.array("tokenizer.ggml.tokens")
    if tokens is not None and tokens.count > config["vocab_size"]:
        raise first.damaged(
            f"its vocabulary has {tokens.count} tokens, but its embedding {config['vocab_size']} "
            "rows"
        )
    facts = CheckpointFacts(
        path=path,
        format="gguf",
        architecture=config["architectures"][0],
        hf_config=config,
        vocab_size=config["vocab_size"],
        max_position_embeddings=config["max_position_embeddings"],
        weight_bytes=sum(info.num_bytes for info in tensors.values()),
        eos_token_ids=gguf_eos_token_ids(first, config["vocab_size"]),
        default_name=first.text("general.name") or os.path.basename(path).removesuffix(".gguf"),
    )
    for shard in shards:
        shard.close()
    return facts


def _folder_facts(path: str, check_architecture: Callable[[str], None]) -> CheckpointFacts:
    config = read_hf_config(path)
    try:
        check_architecture(config["architectures"][0])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}") from None
    weight_bytes = 0
    for file_path in safetensors_paths(path):
        file = SafetensorsFile(file_path)
        weight_bytes += sum(info.num_bytes for info in file.tensors.values())
        file.close()
    generation_path = os.path.join(path, GENERATION_CONFIG_NAME)
    generation = read_json_object(generation_path) if os.path.isfile(generation_path) else {}
    eos_ids = _token_ids(config.get("eos_token_id")) + _token_ids(generation.get("eos_token_id"))
    vocab_size = _size(config, "vocab_size", path)
    dtype = config.get("torch_dtype")
    return CheckpointFacts(
        path=path,
        format="safetensors",
        architecture=config["architectures"][0],
        hf_config=config,
        vocab_size=vocab_size,
        max_position_embeddings=_size(config, "max_position_embeddings", path),
        torch_dtype=dtype.removeprefix("torch.") if isinstance(dtype, str) else None,
        weight_bytes=weight_bytes,
        eos_token_ids=list(dict.fromkeys(i for i in eos_ids if 0 <= i < vocab_size)),
        generation_config=generation,
        default_name=os.path.basename(os.path.abspath(path)),
    )


def _size(config: dict[str, Any], key: str, path: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < MAX_SIZE:
        raise StartupError(
            f"{path}/config.json: {key} is {shown(value)}, not a positive whole number."
        )
    return value


def _token_ids(value: object) -> list[int]:
    """`eos_token_id` is a number, a list of them, or absent."""
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, int) and not isinstance(item, bool)]
