"""Architecture name (`architectures[0]` of config.json) -> model class.

Classes are named by strings, so that checking a configuration does not import the op set.

Runs in: workers, and wherever a configuration is checked. Knows nothing of: weights, devices.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from octavo.errors import ConfigError
from octavo.wording import printable

if TYPE_CHECKING:
    from octavo.models.base import CausalLM

#: architecture -> module and class
ARCHITECTURES: dict[str, str] = {
    "Gemma3ForCausalLM": "octavo.models.gemma3:Gemma3ForCausalLM",
    "LlamaForCausalLM": "octavo.models.llama:LlamaForCausalLM",
    "MistralForCausalLM": "octavo.models.mistral:MistralForCausalLM",
    "Qwen2ForCausalLM": "octavo.models.qwen2:Qwen2ForCausalLM",
    "Qwen3ForCausalLM": "octavo.models.qwen3:Qwen3ForCausalLM",
}


def check_architecture(architecture: str) -> None:
    """Raises:
    ConfigError: Octavo does not know it; the sentence lists those it knows.
    """
    if architecture not in ARCHITECTURES:
        raise ConfigError(
            f"the model's architecture {printable(architecture, 80)} is not supported; supported: "
            f"{', '.join(sorted(ARCHITECTURES))}"
        )


def model_class(architecture: str) -> type[CausalLM]:
    """The class of an architecture.

    Raises:
        ConfigError: as `check_architecture`.
    """
    check_architecture(architecture)
    module, _, name = ARCHITECTURES[architecture].partition(":")
    found: type[CausalLM] = getattr(importlib.import_module(module), name)
    return found
