"""`config.json` of a checkpoint folder, with the spellings of several years made one.

Runs in: the API process. Owns: which keys mean the same. Knows nothing of: GGUF, tensors.
"""

from __future__ import annotations

import os
from typing import Any

from octavo.errors import ConfigError, StartupError
from octavo.weights.json_file import read_json_object
from octavo.wording import shown

CONFIG_NAME = "config.json"


def read_hf_config(folder: str) -> dict[str, Any]:
    """The configuration with `torch_dtype`, `rope_theta`, `rope_scaling` and, for decoders,
    `num_key_value_heads`, `head_dim` and `sliding_window` where older or newer files spell or imply
    them.

    Raises:
        ConfigError: no config.json, or a quantised checkpoint.
        StartupError: it is not a JSON object, or names no architecture.
    """
    path = os.path.join(folder, CONFIG_NAME)
    if not os.path.isfile(path):
        raise ConfigError(
            f"{folder} has no {CONFIG_NAME}; name a folder with {CONFIG_NAME} and safetensors, or "
            "a GGUF file."
        )
    config = read_json_object(path)
    architectures = config.get("architectures")
    match architectures:
        case [str(), *_]:
            pass
        case _:
            raise StartupError(f"{path} does not say which architecture the model has.")
    _refuse_quantised(config, folder)
    _spell_rope(config)
    if config.get("use_sliding_window") is False:  # Qwen's files give a window even so
        config["sliding_window"] = None
    if "torch_dtype" not in config and isinstance(config.get("dtype"), str):
        config["torch_dtype"] = config["dtype"]
    heads, hidden_size = config.get("num_attention_heads"), config.get("hidden_size")
    if isinstance(heads, int) and isinstance(hidden_size, int) and heads > 0:
        if config.get("num_key_value_heads") is None:
            config["num_key_value_heads"] = heads
        if config.get("head_dim") is None:
            config["head_dim"] = hidden_size // heads
    return config


def _spell_rope(config: dict[str, Any]) -> None:
    """transformers 5 writes rope_parameters; before, it was rope_theta beside rope_scaling, whose
    kind was called `type`."""
    parameters = config.get("rope_parameters")
    if isinstance(parameters, dict) and "rope_type" in parameters:
        rest = {key: value for key, value in parameters.items() if key != "rope_theta"}
        if "rope_theta" in parameters:
            config["rope_theta"] = parameters["rope_theta"]
        config["rope_scaling"] = None if rest == {"rope_type": "default"} else rest
    scaling = config.get("rope_scaling")
    if isinstance(scaling, dict) and "rope_type" not in scaling and "type" in scaling:
        config["rope_scaling"] = {**scaling, "rope_type": scaling["type"]}


def _refuse_quantised(config: dict[str, Any], folder: str) -> None:
    quantization = config.get("quantization_config")
    if quantization is None:
        return
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    name = shown(method) if method else "an unnamed method"
    raise ConfigError(
        f"{folder} is quantised with {name}, which is not supported; use the unquantised "
        "checkpoint or a GGUF file."
    )
