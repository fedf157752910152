"""Inverse frequencies of rotary position embeddings, in every scaling variant we know.

Computed once when a model is built; the op itself (`Ops.rope`) only multiplies and rotates.

Sources: RoFormer (default); position interpolation, Chen et al. 2023 (linear); NTK-aware scaling
(dynamic, fixed at the scaled window so that a row's result does not depend on its batch); YaRN,
Peng et al. 2023; Llama 3.1's reference code (llama3).

Runs in: workers. Knows nothing of: tensors, devices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from octavo.errors import ConfigError
from octavo.wording import shown

Float32Array = npt.NDArray[np.float32]

MAX_NUMBER = 1e30  # of any parameter: arithmetic in f32 stays finite


class Rope(msgspec.Struct, frozen=True):
    """A rotary embedding: [rotary_dim / 2] f32 frequencies and the factor on cos and sin."""

    rotary_dim: int
    inv_freq: Float32Array
    scaling: float = 1.0


def rope_from_config(
    hf_config: Mapping[str, object], *, head_dim: int, max_position_embeddings: int
) -> Rope:
    """Reads `rope_theta`, `partial_rotary_factor` and `rope_scaling`, or `rope_parameters`.

    Raises:
        ConfigError: an unknown `rope_type`, or a parameter that is missing or no number.
    """
    parameters = _parameters(hf_config)
    theta = _number(parameters, "rope_theta", 10000.0, above=1.0)
    partial = _number(parameters, "partial_rotary_factor", 1.0)
    rotary_dim = int(head_dim * partial)
    if rotary_dim < 2 or rotary_dim % 2 or rotary_dim > head_dim:
        raise ConfigError(
            f"the model's configuration rotates {rotary_dim} of {head_dim} dimensions of a head "
            f"(partial_rotary_factor={partial:g}); it must be an even number of them."
        )
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    if kind == "default":
        return Rope(rotary_dim, _inverse_frequencies(theta, rotary_dim))
    if kind == "linear":
        factor = np.float32(_number(parameters, "factor"))
        return Rope(rotary_dim, _inverse_frequencies(theta, rotary_dim) / factor)
    if kind == "dynamic":
        return _dynamic_ntk(parameters, theta, rotary_dim)
    if kind == "llama3":
        return _llama3(parameters, theta, rotary_dim)
    if kind == "yarn":
        return _yarn(parameters, theta, rotary_dim, max_position_embeddings)
    if kind == "longrope":
        return _divided(parameters, theta, rotary_dim)
    raise ConfigError(
        f"the model's configuration has rope_type={shown(kind)}; Octavo knows default, linear, "
        "dynamic, llama3, yarn, and longrope with one set of factors."
    )


def _parameters(hf_config: Mapping[str, object]) -> dict[str, object]:
    """`rope_parameters` (newer files), or `rope_scaling` joined with the top-level keys."""
    merged: dict[str, object] = {}
    for key in ("rope_theta", "partial_rotary_factor"):
        if hf_config.get(key) is not None:
            merged[key] = hf_config[key]
    for key in ("rope_scaling", "rope_parameters"):
        value = hf_config.get(key)
        if value is None:
            continue
        if not isinstance(value, Mapping):
            raise ConfigError(
                f"the model's configuration has {key}={shown(value)}; it must be a table."
            )
        merged.update(value)
    return merged


def _number(
    parameters: Mapping[str, object], key: str, default: float | None = None, *, above: float = 0.0
) -> float:
    value = parameters.get(key, default)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not above < value < MAX_NUMBER:  # type: ignore[operator]
        raise ConfigError(
            f"the model's rope parameters have {key}={shown(value)}; it must be a number above "
            f"{above:g}."
        )
    return float(value)  # type: ignore[arg-type]


def _inverse_frequencies(theta: float, rotary_dim: int) -> Float32Array:
    """theta ** (-2i / rotary_dim) with f32 arithmetic, as the models were trained with."""
    exponents = np.arange(0, rotary_dim, 2).astype(np.float32) / np.float32(rotary_dim)
    powers: Float32Array = np.power(np.float32(theta), exponents)
    return np.float32(1.0) / powers


def _dynamic_ntk(parameters: Mapping[str, object], theta: float, rotary_dim: int) -> Rope:
    factor = _number(parameters, "factor", above=math.nextafter(1.0, 0.0))
    if rotary_dim <= 2:
        raise ConfigError("the model's rope_type is dynamic, which needs heads of more than 2.")
    # base for a sequence of factor * trained window, where the general formula becomes this
    base = theta * (factor * factor - (factor - 1)) ** (rotary_dim / (rotary_dim - 2))
    return Rope(rotary_dim, _inverse_frequencies(base, rotary_dim))


def _llama3(parameters: Mapping[str, object], theta: float, rotary_dim: int) -> Rope:
    factor = _number(parameters, "factor")
    low_factor = _number(parameters, "low_freq_factor")
    high_factor = _number(parameters, "high_freq_factor")
    window = _number(parameters, "original_max_position_embeddings")
    if high_factor <= low_factor:
        raise ConfigError(
            f"the model's rope parameters have high_freq_factor={high_factor:g}; it must be above "
            f"low_freq_factor={low_factor:g}."
        )
    inv_freq = _inverse_frequencies(theta, rotary_dim)
    wavelength = np.float32(2 * math.pi) / inv_freq
    smooth = (np.float32(window) / wavelength - np.float32(low_factor)) / np.float32(
        high_factor - low_factor
    )
    scaled = inv_freq / np.float32(factor)
    blended = (1 - smooth) * scaled + smooth * inv_freq
    result = np.where(wavelength > window / low_factor, scaled, inv_freq)
    is_medium = (wavelength <= window / low_factor) & (wavelength >= window / high_factor)
    return Rope(rotary_dim, np.where(is_medium, blended, result).astype(np.float32))


def _yarn(
    parameters: Mapping[str, object], theta: float, rotary_dim: int, max_position_embeddings: int
) -> Rope:
    window = _number(parameters, "original_max_position_embeddings", float(max_position_embeddings))
    factor = _number(parameters, "factor", max_position_embeddings / window)
    beta_fast = _number(parameters, "beta_fast", 32.0)
    beta_slow = _number(parameters, "beta_slow", 1.0)

    def dimension_of(rotations: float) -> float:
        return rotary_dim * math.log(window / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension_of(beta_fast), dimension_of(beta_slow)
    if parameters.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary_dim - 1)
    span = max(high - low, 0.001)  # no division by zero
    ramp = (np.arange(rotary_dim // 2, dtype=np.float32) - np.float32(low)) / np.float32(span)
    extrapolation = 1 - np.clip(ramp, 0, 1)
    inv_freq = _inverse_frequencies(theta, rotary_dim)
    blended = inv_freq / np.float32(factor) * (1 - extrapolation) + inv_freq * extrapolation
    return Rope(rotary_dim, blended.astype(np.float32), _yarn_attention_factor(parameters, factor))


def _divided(parameters: Mapping[str, object], theta: float, rotary_dim: int) -> Rope:
    """One divisor per frequency: longrope whose factors do not depend on the sequence."""
    short, long = parameters.get("short_factor"), parameters.get("long_factor")
    if short != long or not isinstance(short, list) or len(short) != rotary_dim // 2:
        raise ConfigError(
            "the model's rope_type is longrope with different factors for short and long prompts; "
            "Octavo supports it only with one set of factors."
        )
    factors: Float32Array = np.array(
        [_number({"short_factor": value}, "short_factor") for value in short], np.float32
    )
    inv_freq = _inverse_frequencies(theta, rotary_dim)
    return Rope(rotary_dim, inv_freq / factors, _number(parameters, "attention_factor", 1.0))


def _yarn_attention_factor(parameters: Mapping[str, object], factor: float) -> float:
    """The temperature of YaRN section 3.4, folded into cos and sin."""
    if parameters.get("attention_factor") is not None:
        return _number(parameters, "attention_factor")

    def temperature(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if parameters.get("mscale") and parameters.get("mscale_all_dim"):
        return temperature(_number(parameters, "mscale")) / temperature(
            _number(parameters, "mscale_all_dim")
        )
    return temperature(1.0)
