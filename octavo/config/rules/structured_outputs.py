"""`--structured-outputs-config`.

Runs in: the API process, `LLM`. Knows nothing of: grammars.
"""

from __future__ import annotations

from collections.abc import Mapping

from octavo.config.engine import StructuredOutputsConfig
from octavo.config.flags.nearest import did_you_mean
from octavo.config.rules.choice import Choice
from octavo.errors import ConfigError

FLAG = "--structured-outputs-config"
BACKENDS = ("auto", "guidance", "xgrammar", "outlines", "lm-format-enforcer")
_KEYS = (
    "backend",
    "disable_any_whitespace",
    "disable_additional_properties",
    "enable_in_reasoning",
)


def choose_structured_outputs(given: Mapping[str, object]) -> Choice[StructuredOutputsConfig]:
    """The part of the configuration; every backend name stands for the one there is.

    Raises:
        ConfigError: unknown key or backend, or a wrong type.
    """
    for key in given:
        if key not in _KEYS:
            raise ConfigError(f"{FLAG} has no key {key!r}{did_you_mean(key, _KEYS)}")
    backend = given.get("backend", "auto")
    if backend not in BACKENDS:
        raise ConfigError(f"{FLAG}.backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if _boolean(given, "enable_in_reasoning"):
        raise ConfigError(f"{FLAG}.enable_in_reasoning: reasoning models are not available yet")
    reason = ""
    if backend not in ("auto", "guidance"):
        reason = f"structured outputs use guidance instead of {backend}: it is the only backend"
    return Choice(
        StructuredOutputsConfig(
            backend="guidance" if backend != "auto" else "auto",
            disable_any_whitespace=_boolean(given, "disable_any_whitespace"),
            disable_additional_properties=_boolean(given, "disable_additional_properties"),
        ),
        reason,
    )


def _boolean(given: Mapping[str, object], key: str) -> bool:
    value = given.get(key, False)
    if not isinstance(value, bool):
        raise ConfigError(f"{FLAG}.{key} must be true or false, got {value!r}")
    return value
