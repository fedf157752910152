"""The engine's flags after those of another command."""

from __future__ import annotations

import pytest

from octavo.cli.engine_words import read_engine_words
from octavo.errors import ConfigError


@pytest.mark.parametrize(
    "words", [["--model", "m", "--port", "1"], ["--port=1", "--model=m"], ["m", "--port", "1"]]
)
def test_the_model_may_be_a_flag(words: list[str]) -> None:
    engine, server = read_engine_words(words)
    assert engine.model == "m"
    assert server.port == 1
    assert engine.warnings == []


def test_warnings_of_both_are_kept() -> None:
    engine, _ = read_engine_words(["--enforce-eager", "--enable-offline-docs"])
    assert len(engine.warnings) == 2


def test_a_mistake_is_told() -> None:
    with pytest.raises(ConfigError, match="unknown flag --modle; did you mean --model"):
        read_engine_words(["--modle", "x"])
