"""Octavo: LLM inference and serving. `from octavo import LLM, SamplingParams`."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from octavo.llm import LLM
    from octavo.sampling_params import SamplingParams

__all__ = ["LLM", "SamplingParams", "__version__"]


def __getattr__(name: str) -> object:
    """Loads the public names on first use, so that `import octavo` stays cheap."""
    if name == "LLM":
        from octavo.llm import LLM

        return LLM
    if name == "SamplingParams":
        from octavo.sampling_params import SamplingParams

        return SamplingParams
    raise AttributeError(f"module 'octavo' has no attribute {name!r}")
