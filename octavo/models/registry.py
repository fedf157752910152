"""Architecture name (`architectures[0]` of config.json) -> model class.

Runs in: workers, and wherever a configuration is checked. Knows nothing of: weights, devices.
"""

from __future__ import annotations

from octavo.errors import ConfigError
from octavo.models.base import CausalLM
from octavo.models.llama import LlamaForCausalLM

ARCHITECTURES: dict[str, type[CausalLM]] = {
    "LlamaForCausalLM": LlamaForCausalLM,
}


def model_class(architecture: str) -> type[CausalLM]:
    """The class of an architecture.

    Raises:
        ConfigError: Octavo does not know it; the sentence lists those it knows.
    """
    if architecture not in ARCHITECTURES:
        raise ConfigError(
            f"the model's architecture {architecture} is not supported; supported: "
            f"{', '.join(sorted(ARCHITECTURES))}"
        )
    return ARCHITECTURES[architecture]
