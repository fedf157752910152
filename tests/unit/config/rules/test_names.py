"""What the model is called."""

from __future__ import annotations

import pytest

from octavo.config.rules.names import choose_served_names
from octavo.errors import ConfigError


def test_given_names_are_kept_in_order_without_repeats() -> None:
    assert choose_served_names(["b", "a", "b"], model="m", default_name="d") == ["b", "a"]


@pytest.mark.parametrize("none", [None, []])
def test_else_it_is_the_model_as_written(none: list[str] | None) -> None:
    assert choose_served_names(none, model="org/m", default_name="d") == ["org/m"]


def test_the_default_model_has_its_own_name() -> None:
    assert choose_served_names(None, model=None, default_name="SmolLM2") == ["SmolLM2"]


def test_empty_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="--served-model-name must not hold an empty name"):
        choose_served_names(["a", " "], model="m", default_name="d")
