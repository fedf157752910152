"""How much one step may take on: tokens and requests.

Runs in: the API process, `LLM`. Knows nothing of: the scheduler.
"""

from __future__ import annotations

from typing import NamedTuple

from octavo.config.rules.choice import Choice
from octavo.errors import ConfigError

#: a step of 512 tokens keeps streams, aborts and shutdown responsive on few cores (vLLM: 2048)
CPU_MAX_NUM_BATCHED_TOKENS = 512
CPU_MAX_NUM_SEQS = 128


class Budgets(NamedTuple):
    """Per step; `is_given`: the token budget must not be lowered after the warm-up."""

    max_num_batched_tokens: int
    max_num_seqs: int
    is_given: bool


def choose_budgets(
    *,
    max_num_batched_tokens: int | None,
    max_num_scheduled_tokens: int | None,
    max_num_seqs: int | None,
    max_num_active_seqs: int | None,
    max_model_len: int,
    enable_chunked_prefill: bool,
    performance_mode: str,
) -> Choice[Budgets]:
    """Defaults filled in, the smaller of each pair of limits, and the two made consistent.

    Raises:
        ConfigError: the given numbers contradict each other.
    """
    factor = 2 if performance_mode == "throughput" else 1
    seqs = _smaller(
        "max-num-active-seqs", max_num_active_seqs, "max-num-seqs", max_num_seqs,
        CPU_MAX_NUM_SEQS * factor,
    )  # fmt: skip
    tokens = _smaller(
        "max-num-scheduled-tokens", max_num_scheduled_tokens,
        "max-num-batched-tokens", max_num_batched_tokens, CPU_MAX_NUM_BATCHED_TOKENS * factor,
    )  # fmt: skip
    tokens_given = max_num_batched_tokens is not None or max_num_scheduled_tokens is not None
    seqs_given = max_num_seqs is not None or max_num_active_seqs is not None
    reason = ""
    if not enable_chunked_prefill and tokens < max_model_len:
        if tokens_given:
            raise ConfigError(
                f"--max-num-batched-tokens {tokens} is below --max-model-len {max_model_len}, and "
                "without chunked prefill a prompt must fit in one step: raise it, or leave out "
                "--no-enable-chunked-prefill"
            )
        tokens = max_model_len
        reason = f"max_num_batched_tokens {tokens}: without chunked prefill, a whole prompt"
    if tokens < seqs:
        if tokens_given and seqs_given:
            raise ConfigError(
                f"--max-num-batched-tokens {tokens} is below --max-num-seqs {seqs}: a step gives "
                "every running request at least one token, so raise the first or lower the second"
            )
        if tokens_given:
            seqs = tokens
            reason = f"max_num_seqs {seqs}: as many as the tokens of a step"
        else:
            tokens = seqs
            reason = f"max_num_batched_tokens {tokens}: one token per request of --max-num-seqs"
    is_fixed = tokens_given or not enable_chunked_prefill
    return Choice(Budgets(tokens, seqs, is_fixed), reason)


def _smaller(
    inner: str, inner_value: int | None, outer: str, outer_value: int | None, default: int
) -> int:
    if inner_value is None:
        return default if outer_value is None else outer_value
    if outer_value is not None and inner_value > outer_value:
        raise ConfigError(f"--{inner} {inner_value} must not exceed --{outer} {outer_value}")
    return inner_value
