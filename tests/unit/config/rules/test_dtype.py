"""Which arithmetic the weights are used with (case C124)."""

from __future__ import annotations

import pytest

from octavo.config.rules.dtype import choose_dtype, choose_prompt_dtype
from octavo.errors import ConfigError


def choose(dtype: str, stored: str | None, isa: str = "avx512_bf16") -> tuple[str, str]:
    fmt = "gguf" if stored is None else "safetensors"
    return choose_dtype(dtype, checkpoint_format=fmt, checkpoint_dtype=stored, isa=isa)


def test_gguf_auto_uses_the_stored_kind() -> None:
    value, reason = choose("auto", None)
    assert value == "auto"
    assert "as the GGUF file stores them" in reason


@pytest.mark.parametrize(
    ("given", "value"), [("float32", "float32"), ("float", "float32"), ("bfloat16", "bfloat16")]
)
def test_gguf_weights_may_be_dequantized(given: str, value: str) -> None:
    chosen, reason = choose(given, None)
    assert chosen == value
    assert "dequantized" in reason


@pytest.mark.parametrize("stored", ["bfloat16", "float16", "float32"])
def test_auto_is_bfloat16_for_every_stored_type_and_says_so(stored: str) -> None:
    value, reason = choose("auto", stored)
    assert value == "bfloat16"
    assert f"the fastest type for a {stored} checkpoint" in reason


def test_auto_names_the_instruction_set_it_relies_on() -> None:
    assert "bfloat16 dot products" in choose("auto", "bfloat16", "avx512_bf16")[1]
    assert "widened to float32" in choose("auto", "bfloat16", "avx2")[1]


def test_lost_precision_is_mentioned() -> None:
    assert "three bits" in choose("auto", "float16")[1]
    assert "three bits" in choose("bfloat16", "float16")[1]
    assert "three bits" not in choose("auto", "bfloat16")[1]
    assert "--dtype float32" in choose("auto", "float32")[1]


def test_float32_is_kept_when_asked_for() -> None:
    assert choose("float32", "bfloat16")[0] == "float32"


@pytest.mark.parametrize("given", ["float16", "half"])
@pytest.mark.parametrize("stored", [None, "float16", "bfloat16"])
def test_float16_is_refused_with_the_reason(given: str, stored: str | None) -> None:
    with pytest.raises(ConfigError, match="--dtype float16 is not supported on CPU: there is no"):
        choose(given, stored)


@pytest.mark.parametrize("prompt_dtype", ["auto", "int8", "bfloat16"])
def test_what_prompts_are_read_in_is_a_choice_where_weights_are_quantised(
    prompt_dtype: str,
) -> None:
    assert choose_prompt_dtype(prompt_dtype, dtype="auto") == (prompt_dtype, "")


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_without_quantised_weights_prompts_have_no_arithmetic_of_their_own(dtype: str) -> None:
    assert choose_prompt_dtype("auto", dtype=dtype) == ("auto", "")
    value, reason = choose_prompt_dtype("int8", dtype=dtype)
    assert value == "auto"
    assert reason == (
        f"--prompt-dtype int8 has no effect: with dtype {dtype} no weight is quantised"
    )


def test_bfloat16_prompts_are_had_with_bfloat16_and_cannot_be_with_float32() -> None:
    assert choose_prompt_dtype("bfloat16", dtype="bfloat16") == ("auto", "")
    with pytest.raises(ConfigError, match="--prompt-dtype bfloat16 cannot be had with --dtype flo"):
        choose_prompt_dtype("bfloat16", dtype="float32")
