"""A Llama small enough for unit tests: its configuration and random weights of any stored type."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import StoredTensor
from tests.fakes.tiny_models import TINY_LLAMA, tensors_for

__all__ = ["TINY_LLAMA", "tiny_llama_tensors"]


def tiny_llama_tensors(
    hf_config: Mapping[str, object], kind: GGMLType = GGMLType.F32, seed: int = 0
) -> dict[str, StoredTensor]:
    """Every tensor the model asks for: matrices of `kind`, vectors of F32."""
    return tensors_for("LlamaForCausalLM", hf_config, kind, seed)
