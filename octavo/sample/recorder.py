"""The order of operations from logits to tokens, said once by calling ops.

    raw log-probabilities or logits (if those are what is reported)
    -> allowed-token masks -> logits processors -> biases and bans
    -> repetition, frequency, presence penalties
    -> greedy, or temperature -> min-p -> top-k -> top-p -> draw
    -> processed log-probabilities or logits: of what was drawn from (if those are what is reported)

Same order as vLLM, except that plug-ins see the logits before `logit_bias` and bans, which they
therefore cannot undo: `docs/sampling.md`. A mask is -inf, which all that follows leaves as it is.

Runs in: workers, once. Knows nothing of: requests, sizes, devices.
"""

from __future__ import annotations

from octavo.ops.interface import Ops, Tensor


def record_sampling(
    ops: Ops, logits: Tensor, *, logprobs_mode: str, has_processors: bool = False
) -> None:
    """Calls the sampling ops on `logits` [L, vocab_size].

    Args:
        logprobs_mode: what is reported (`--logprobs-mode`): raw_logprobs, raw_logits: of the model
            as it is; processed_logprobs, processed_logits: of the distribution drawn from.
        has_processors: logits processors are plugged in.
    """
    kind, _, value = logprobs_mode.partition("_")
    as_logits = value == "logits"
    if kind == "raw":
        ops.logprobs(logits, processed=False, as_logits=as_logits)
    logits = ops.mask(logits)
    if has_processors:
        logits = ops.logits_hook(logits)
    logits = ops.penalize(logits)
    if kind == "processed":
        ops.logprobs(logits, processed=True, as_logits=as_logits)
    ops.sample(logits)
