"""`--structured-outputs-config`."""

from __future__ import annotations

import pytest

from octavo.config.engine import StructuredOutputsConfig
from octavo.config.rules.structured_outputs import choose_structured_outputs
from octavo.errors import ConfigError


def test_the_default_is_auto() -> None:
    assert choose_structured_outputs({}) == (StructuredOutputsConfig(), "")


def test_switches_are_taken() -> None:
    config = choose_structured_outputs({"disable_any_whitespace": True}).value
    assert config.disable_any_whitespace
    assert not config.disable_additional_properties


def test_other_backends_are_answered_with_the_one_there_is() -> None:
    config, reason = choose_structured_outputs({"backend": "xgrammar"})
    assert config.backend == "guidance"
    assert "guidance instead of xgrammar" in reason
    assert choose_structured_outputs({"backend": "guidance"}).reason == ""


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"backnd": "auto"}, "has no key 'backnd'; did you mean backend"),
        ({"backend": "regex"}, "backend must be one of auto, guidance"),
        ({"disable_any_whitespace": "yes"}, "must be true or false, got 'yes'"),
        ({"enable_in_reasoning": True}, "not available yet"),
    ],
)
def test_mistakes_are_explained(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        choose_structured_outputs(given)
