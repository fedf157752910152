"""`--structured-outputs-config`."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.config.engine import StructuredOutputsConfig
from octavo.config.rules.structured_outputs import choose_structured_outputs
from octavo.errors import ConfigError


@pytest.mark.parametrize("given", [{}, {"backend": "auto"}, {"backend": "guidance"}])
def test_there_is_one_backend(given: dict[str, Any]) -> None:
    chosen = choose_structured_outputs(given)
    assert chosen.value == StructuredOutputsConfig(backend="guidance")
    assert not chosen.reason


@pytest.mark.parametrize("backend", ["xgrammar", "outlines", "lm-format-enforcer"])
def test_other_backends_of_vllm_are_answered_with_a_note(backend: str) -> None:
    chosen = choose_structured_outputs({"backend": backend})
    assert chosen.value.backend == "guidance"
    assert backend in str(chosen.reason)


def test_switches_are_taken() -> None:
    given = dict.fromkeys(
        ("disable_any_whitespace", "disable_additional_properties", "enable_in_reasoning"), True
    )
    assert choose_structured_outputs(given).value == StructuredOutputsConfig(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"backend": "magic"}, "backend must be one of"),
        ({"backend": 1}, "backend must be one of"),
        ({"disable_any_whitespace": "yes"}, "must be true or false"),
        ({"whitespace": 1}, "does not exist"),
    ],
)
def test_wrong_values_are_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        choose_structured_outputs(given)
