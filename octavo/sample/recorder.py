"""The order of operations from logits to tokens, said once by calling ops.

    raw log-probabilities (if those are what is reported)
    -> allowed-token masks -> logits processors (if any are configured)
    -> biases and bans -> repetition, frequency, presence penalties
    -> processed log-probabilities (if those are what is reported)
    -> greedy, or temperature -> min-p -> top-k -> top-p -> draw

Same order as vLLM: a mask is -inf, which biases and penalties leave as it is.

Runs in: workers, once. Knows nothing of: requests, sizes, devices.
"""

from __future__ import annotations

from octavo.ops.interface import Ops, Tensor


def record_sampling(
    ops: Ops, logits: Tensor, *, reports_processed: bool, has_processors: bool = False
) -> None:
    """Calls the sampling ops on `logits` [L, vocab_size].

    Args:
        reports_processed: report log-probabilities after masks, biases and penalties instead of the
            model's own (`--logprobs-mode processed_logprobs`).
        has_processors: logits processors are configured: steps may bring a hook.
    """
    if not reports_processed:
        ops.logprobs(logits, processed=False)
    logits = ops.mask(logits)
    if has_processors:
        logits = ops.logits_hook(logits)
    logits = ops.penalize(logits)
    if reports_processed:
        ops.logprobs(logits, processed=True)
    ops.sample(logits)
