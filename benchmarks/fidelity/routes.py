"""The ways a model's forward pass can be computed, and an `LLM` that takes one of them.

Knows nothing of: texts, scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from octavo import LLM
from octavo.config.args import EngineArgs
from octavo.envs import read_environ
from octavo.launch.engine_config import find_engine_config
from octavo.launch.offline import engine_of
from octavo.ops.ggml_type import GGMLType
from octavo.ops.library import load_library
from octavo.ops.program import ElementType

#: any name but "cpu" takes the op set of `octavo/ops/torch.py`; to PyTorch this is the CPU
TORCH_ON_CPU = "cpu:0"


@dataclass(frozen=True)
class Route:
    """One way of computing.

    Attributes:
        backend: "native" (the CPU library) or "torch" (the op set in eager PyTorch, on the CPU).
        dtype: as `--dtype`.
        kv_cache_dtype: as `--kv-cache-dtype`.
        prompt_dtype: as `--prompt-dtype`. What is scored are prompts: "int8" shows what generated
            tokens are computed in where prompts have an arithmetic of their own.
    """

    backend: str
    dtype: str
    kv_cache_dtype: str = "auto"
    prompt_dtype: str = "auto"

    @property
    def name(self) -> str:
        """`backend/dtype`, and the types of cache and prompts where they were chosen."""
        parts = [self.backend, self.dtype]
        if self.kv_cache_dtype != "auto":
            parts.append(self.kv_cache_dtype)
        if self.prompt_dtype != "auto":
            parts.append(f"{self.prompt_dtype}-prompts")
        return "/".join(parts)


def prompt_type() -> ElementType:
    """What quantised weights read prompts in on this machine, where nobody asks for anything
    else."""
    return ElementType(load_library(None).input_type(GGMLType.Q8_0, is_prompt=True))


#: what all others are compared with
REFERENCE = Route("native", "float32")


def open_llm(model: str, route: Route, **options: object) -> LLM:
    """An `LLM` that computes by `route`.

    Args:
        model: GGUF file or folder.
        options: more options of the engine (`EngineArgs`).

    Raises:
        ConfigError: this build has no such route for the model.
    """
    args = EngineArgs(
        model=model,
        dtype=route.dtype,
        kv_cache_dtype=route.kv_cache_dtype,
        prompt_dtype=route.prompt_dtype,
        **options,
    )
    config = find_engine_config(args, read_environ())
    if route.backend == "torch":
        device = msgspec.structs.replace(config.device, device=TORCH_ON_CPU)
        config = msgspec.structs.replace(config, device=device)
    return LLM.of_engine(*engine_of(config))
