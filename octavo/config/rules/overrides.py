"""`--hf-overrides`: values merged into the model's configuration.

Runs in: the API process, `LLM`. Knows nothing of: what the keys mean.
"""

from __future__ import annotations

from collections.abc import Mapping


def merge(base: Mapping[str, object], overrides: Mapping[str, object]) -> dict[str, object]:
    """`base` with `overrides` on top; objects are merged key by key, all else is replaced."""
    merged = dict(base)
    for key, value in overrides.items():
        inner = merged.get(key)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            merged[key] = merge(inner, value)
        else:
            merged[key] = value
    return merged
