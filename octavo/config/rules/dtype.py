"""Which arithmetic the weights are used with, and whether prompts have one of their own.

On CPU the step is bound by the bytes of weights read, and all types accumulate in float32. So the
fastest correct type is the narrowest that loses nothing: a GGUF file's stored kind, bfloat16 for
16-bit checkpoints. float16 arithmetic is refused: no instruction of the supported levels
accumulates it in float32, and its range would change results.

Runs in: the API process, `LLM`. Knows nothing of: kernels.
"""

from __future__ import annotations

from octavo.config.rules.choice import Choice
from octavo.errors import ConfigError

_SAME = {"half": "float16", "float": "float32"}

_HOW = {
    "amx": "bfloat16 tiles of this CPU",
    "avx512_bf16": "bfloat16 dot products of this CPU",
    "avx512_vnni": "widened to float32 in registers on this CPU",
    "avx2": "widened to float32 in registers on this CPU",
    "neon_i8mm": "bfloat16 dot products of this CPU",
    "neon_dotprod": "widened to float32 in registers on this CPU",
    "scalar": "widened to float32 on this CPU",
}


def choose_dtype(
    dtype: str, *, checkpoint_format: str, checkpoint_dtype: str | None, isa: str
) -> Choice[str]:
    """`auto` (GGUF: as stored), `bfloat16` or `float32`.

    Raises:
        ConfigError: float16 was asked for.
    """
    dtype = _SAME.get(dtype, dtype)
    if dtype == "float16":
        raise ConfigError(
            "--dtype float16 is not supported on CPU: there is no float16 arithmetic with float32 "
            "accumulation; use --dtype auto, bfloat16 or float32"
        )
    if checkpoint_format == "gguf":
        return _for_gguf(dtype)
    stored = _SAME.get(checkpoint_dtype or "", checkpoint_dtype)
    if dtype == "float32":
        return Choice("float32", f"dtype float32 as given (the checkpoint holds {stored})")
    how = _HOW.get(isa, "on this device")
    if dtype == "bfloat16":
        lost = "; float16 weights lose three bits of precision" if stored == "float16" else ""
        return Choice("bfloat16", f"dtype bfloat16 as given (the checkpoint holds {stored}{lost})")
    reason = f"dtype auto: bfloat16 ({how}), the fastest type for a {stored} checkpoint"
    if stored == "float16":
        reason += "; weights lose three bits of precision, --dtype float32 keeps them"
    elif stored == "float32":
        reason += "; --dtype float32 keeps all bits of the weights"
    return Choice("bfloat16", reason)


def choose_prompt_dtype(prompt_dtype: str, *, dtype: str) -> Choice[str]:
    """`auto`, `int8` or `bfloat16`: what quantised weights read tokens of prompts in. Whether the
    device can is asked where it is opened.

    Args:
        dtype: as chosen; only with `auto` weights are quantised.

    Raises:
        ConfigError: bfloat16 was asked for beside float32.
    """
    if dtype == "auto":
        return Choice(prompt_dtype)
    if prompt_dtype == "int8":
        return Choice(
            "auto", f"--prompt-dtype int8 has no effect: with dtype {dtype} no weight is quantised"
        )
    if prompt_dtype == "bfloat16" and dtype == "float32":
        raise ConfigError(
            "--prompt-dtype bfloat16 cannot be had with --dtype float32: leave one of them out"
        )
    return Choice("auto")


def _for_gguf(dtype: str) -> Choice[str]:
    if dtype == "auto":
        return Choice(
            "auto", "dtype auto: weights as the GGUF file stores them, activations in 8 bits"
        )
    return Choice(dtype, f"dtype {dtype} as given: weights of the GGUF file are dequantized to it")
