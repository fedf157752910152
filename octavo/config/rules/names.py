"""What the model is called in the API.

Runs in: the API process, `LLM`. Knows nothing of: routes.
"""

from __future__ import annotations

from octavo.errors import ConfigError


def choose_served_names(
    served_model_name: list[str] | None, *, model: str | None, default_name: str
) -> list[str]:
    """Names as given, else the model as the user wrote it, else the default model's own name.

    Raises:
        ConfigError: an empty name.
    """
    if served_model_name:
        if any(not name.strip() for name in served_model_name):
            raise ConfigError("--served-model-name must not hold an empty name")
        return list(dict.fromkeys(served_model_name))
    return [model or default_name]
