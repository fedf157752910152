"""Sampling parameters that requests start from: the model's generation_config.json.

Order, first wins: the request, --override-generation-config, generation_config.json, neutral.

Runs in: the API process, `LLM`. Owns: which keys count. Knows nothing of: requests.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from octavo.config.rules.choice import Choice
from octavo.errors import ConfigError, InvalidParameter
from octavo.sampling_params import SamplingParams
from octavo.wording import shown

MAX_INTEGER = 2**63  # what travels to the engine

#: keys of generation_config.json -> field of SamplingParams
KEYS = {
    "repetition_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "max_new_tokens": "max_tokens",
}
_WHOLE = frozenset({"top_k", "max_tokens"})


def choose_sampling_defaults(
    source: str, *, override: Mapping[str, object], from_model: Mapping[str, object]
) -> Choice[dict[str, float]]:
    """Defaults by field name of `SamplingParams`.

    Args:
        source: --generation-config: auto, vllm, or a folder with generation_config.json.
        override: --override-generation-config.
        from_model: generation_config.json of the checkpoint.

    Raises:
        ConfigError: the folder has no readable file, or a value is not a valid parameter.
    """
    where = "the model's generation_config.json"
    if source == "vllm":
        base: Mapping[str, object] = {}
    elif source == "auto":
        base = from_model
    else:
        base, where = read_generation_config(source), f"{source}/generation_config.json"
    defaults = _checked(base, where)
    given = _checked(override, "--override-generation-config")
    reasons = []
    if defaults:
        reasons.append(
            f"sampling defaults from {where}: {_shown(defaults)} "
            "(--generation-config vllm turns them off)"
        )
    if given:
        reasons.append(f"sampling defaults from --override-generation-config: {_shown(given)}")
    return Choice({**defaults, **given}, "; ".join(reasons))


def read_generation_config(folder: str) -> dict[str, object]:
    """generation_config.json of a folder.

    Raises:
        ConfigError: it is not there or not a JSON object.
    """
    path = os.path.join(folder, "generation_config.json")
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        raise ConfigError(
            f"--generation-config {folder} must be auto, vllm or a folder with "
            f"generation_config.json: {error.strerror}"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold a JSON object")
    return content


def _checked(source: Mapping[str, object], where: str) -> dict[str, float]:
    """The keys that count, as numbers that `SamplingParams` accepts."""
    defaults: dict[str, float] = {}
    for key, field in KEYS.items():
        value = source.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ConfigError(f"{where}: {key} must be a number, got {shown(value)}")
        if isinstance(value, int) and not -MAX_INTEGER <= value < MAX_INTEGER:
            raise ConfigError(f"{where}: {key} must be a smaller number, got {shown(value)}")
        if field in _WHOLE:
            if isinstance(value, float) and not value.is_integer():
                raise ConfigError(f"{where}: {key} must be a whole number, got {value!r}")
            value = int(value)
        defaults[field] = value
    try:
        SamplingParams(**defaults)  # type: ignore[arg-type]
    except InvalidParameter as error:
        remedy = "" if where.startswith("--") else " --generation-config vllm ignores the file."
        raise ConfigError(f"{where}: {error.message}{remedy}") from None
    return defaults


def _shown(values: Mapping[str, float]) -> str:
    return ", ".join(f"{key}={value:g}" for key, value in values.items())
