"""Flags of attention, state-space layers and structured output (three groups of vLLM)."""

from __future__ import annotations

from octavo.config.flags.flag import BOOL, INT, STR, Flag, hint

ATTENTION_GROUP = "AttentionConfig"
MAMBA_GROUP = "MambaConfig"
STRUCTURED_GROUP = "StructuredOutputsConfig"

NO_MAMBA = "state-space models are not available"

ATTENTION_FLAGS: tuple[Flag, ...] = (
    hint(
        "attention-backend",
        STR,
        None,
        "attention kernel",
        "there is one attention kernel per instruction set",
    ),
)

MAMBA_FLAGS: tuple[Flag, ...] = (
    hint("mamba-backend", STR, "triton", "state-space kernel", NO_MAMBA),
    hint("mamba-ssu-algorithm", STR, None, "algorithm of the state update", NO_MAMBA),
    hint(
        "enable-mamba-cache-stochastic-rounding", BOOL, False, "round the state at random", NO_MAMBA
    ),
    hint("mamba-cache-philox-rounds", INT, 0, "rounds of the generator for that", NO_MAMBA),
)

STRUCTURED_FLAGS: tuple[Flag, ...] = (
    Flag("reasoning-parser", STR, "", "how reasoning is separated from the answer: a name"),
    Flag("reasoning-parser-plugin", STR, "", "Python file that adds reasoning parsers"),
)
