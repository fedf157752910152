"""`--structured-outputs-config`: what holds for all requests with a grammar.

Runs in: the API process, `LLM`. Owns: its keys. Knows nothing of: grammars.
"""

from __future__ import annotations

from collections.abc import Mapping

from octavo.config.engine import StructuredOutputsConfig
from octavo.config.rules.choice import Choice
from octavo.errors import ConfigError
from octavo.wording import shown

FLAG = "--structured-outputs-config"
OWN_BACKENDS = ("auto", "guidance")
OTHER_BACKENDS = ("xgrammar", "outlines", "lm-format-enforcer")
_SWITCHES = ("disable_any_whitespace", "disable_additional_properties", "enable_in_reasoning")
#: of a feature that is not there: false is what happens anyway
_ABSENT = ("disable_fallback",)


def choose_structured_outputs(given: Mapping[str, object]) -> Choice[StructuredOutputsConfig]:
    """The configuration.

    Raises:
        ConfigError: a key is unknown or has a wrong value; names both.
    """
    keys = ("backend", *_SWITCHES, *_ABSENT)
    for key, value in given.items():
        where = f"{FLAG}.{key}"
        if key not in keys:
            raise ConfigError(f"{where} does not exist; the keys are {', '.join(keys)}")
        if key == "backend":
            _check_backend(value)
        elif not isinstance(value, bool):
            raise ConfigError(f"{where} must be true or false, got {shown(value)}")
    backend = str(given.get("backend", "auto"))
    config = StructuredOutputsConfig(
        backend="guidance", **{key: bool(given.get(key, False)) for key in _SWITCHES}
    )
    if backend in OTHER_BACKENDS:
        return Choice(
            config,
            f"{FLAG} asks for {backend}, which is not there: grammars are those of llguidance "
            "(guidance); see docs/structured-outputs.md",
        )
    return Choice(config)


def _check_backend(value: object) -> None:
    names = (*OWN_BACKENDS, *OTHER_BACKENDS)
    if value not in names:
        raise ConfigError(f"{FLAG}.backend must be one of {', '.join(names)}, got {shown(value)}")
