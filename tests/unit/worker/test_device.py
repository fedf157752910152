"""Opening a device: what it was asked to compute in, it can, or it says so."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from octavo.config.engine import DeviceConfig
from octavo.errors import ConfigError
from octavo.ops.ggml_type import GGMLType
from octavo.ops.library import Library, load_library
from octavo.ops.native import NativeBackend
from octavo.ops.program import ElementType
from octavo.worker.device import open_backend

CPU = DeviceConfig()


def with_tiles(library: Library, kind: GGMLType, *, is_prompt: bool) -> int:
    """A level that reads prompts in bfloat16."""
    is_float = kind in (GGMLType.F32, GGMLType.BF16)
    return ElementType.BF16 if is_prompt and not is_float else ElementType.A8


def with_rotation(library: Library, kind: GGMLType, *, is_prompt: bool) -> int:
    """A level that reads prompts in rotated int8."""
    is_float = kind in (GGMLType.F32, GGMLType.BF16)
    return ElementType.A8R if is_prompt and not is_float else ElementType.A8


def with_one_form(library: Library, kind: GGMLType, *, is_prompt: bool) -> int:
    """A level that reads all tokens alike."""
    return ElementType.A8


@pytest.mark.parametrize("prompt_dtype", ["auto", "int8", "bfloat16"])
def test_prompts_are_computed_as_asked(monkeypatch: pytest.MonkeyPatch, prompt_dtype: str) -> None:
    monkeypatch.setattr(Library, "input_type", with_tiles)
    backend = open_backend(CPU, "auto", "auto", prompt_dtype)
    assert isinstance(backend, NativeBackend)
    assert backend.options.prompts_as_generated is (prompt_dtype == "int8")
    backend.close()


@pytest.mark.parametrize("without_tiles", [with_rotation, with_one_form])
def test_bfloat16_needs_a_level_with_tile_registers(
    monkeypatch: pytest.MonkeyPatch, without_tiles: Callable[..., int]
) -> None:
    monkeypatch.setattr(Library, "input_type", without_tiles)
    with pytest.raises(ConfigError) as refused:
        open_backend(CPU, "auto", "auto", "bfloat16")
    assert refused.value.message == (
        "--prompt-dtype bfloat16 needs tile registers (level amx); the level here is "
        f"{load_library().isa}: leave it out, or use --dtype bfloat16 for all tokens"
    )
    for allowed in ("auto", "int8"):
        open_backend(CPU, "auto", "auto", allowed).close()


@pytest.mark.parametrize("prompt_dtype", ["int8", "bfloat16"])
def test_pytorch_computes_all_tokens_alike(
    monkeypatch: pytest.MonkeyPatch, prompt_dtype: str
) -> None:
    monkeypatch.setitem(sys.modules, "octavo.ops.torch", None)  # it is not even imported
    with pytest.raises(ConfigError, match=f"--prompt-dtype {prompt_dtype} is for CPUs: on cuda"):
        open_backend(DeviceConfig(device="cuda"), "auto", "auto", prompt_dtype)
