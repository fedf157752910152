"""Architecture names."""

from __future__ import annotations

import pytest

from octavo.errors import ConfigError
from octavo.models.llama import LlamaForCausalLM
from octavo.models.registry import model_class


def test_a_known_architecture_is_its_class() -> None:
    assert model_class("LlamaForCausalLM") is LlamaForCausalLM


def test_an_unknown_one_lists_those_that_work() -> None:
    with pytest.raises(ConfigError, match=r"MambaForCausalLM is not supported.*LlamaForCausalLM"):
        model_class("MambaForCausalLM")
