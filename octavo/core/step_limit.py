"""How many tokens a step may have so that it does not take too long.

A step delays every stream, every abort and the shutdown by its length. How long it takes depends on
the machine, on who else uses it and on how long the contexts are, so the limit follows what steps
take; it begins with what the warm-up took.

Called by: `octavo/core/engine_core.py`. Runs in: EngineCore. Owns: the current limit.
Knows nothing of: requests, what is in a step.
"""

from __future__ import annotations

import logging

from octavo.config.engine import SchedulerConfig

logger = logging.getLogger(__name__)

MAX_STEP_S = 0.4
MIN_BATCHED_TOKENS = 64
#: weight of a step's time in the estimate; large, because contexts grow from chunk to chunk
_WEIGHT = 0.5
_ROUND_TO = 16


class StepLimit:
    """Most tokens of the next step.

    The limit never falls below `MIN_BATCHED_TOKENS` nor `max_num_seqs` (every running request must
    get its token in every step) and never rises above `max_num_batched_tokens`. A given
    `max_num_batched_tokens` is kept, and so is one that must hold whole prompts.

    Args:
        config: budgets.
        full_step_s: seconds of a step of `max_num_batched_tokens` tokens, from the warm-up.
    """

    def __init__(self, config: SchedulerConfig, full_step_s: float) -> None:
        most = config.max_num_batched_tokens
        is_fixed = config.max_num_batched_tokens_is_given or not config.enable_chunked_prefill
        self._most = most
        self._least = most if is_fixed else min(max(MIN_BATCHED_TOKENS, config.max_num_seqs), most)
        self._seconds_per_token = full_step_s / most
        self.num_tokens = self._limit()
        if self.num_tokens < most:
            logger.info(
                "max_num_batched_tokens begins at %d instead of %d: a full step would take %.2f s "
                "and delay every stream that long (--max-num-batched-tokens keeps a value)",
                self.num_tokens,
                most,
                full_step_s,
            )

    def observe(self, num_tokens: int, step_s: float) -> None:
        """A step of `num_tokens` tokens took `step_s` seconds.

        Small steps say little about large ones: most of their time does not grow with tokens.
        """
        if num_tokens >= MIN_BATCHED_TOKENS:
            self._seconds_per_token += _WEIGHT * (step_s / num_tokens - self._seconds_per_token)
            self.num_tokens = self._limit()

    def _limit(self) -> int:
        wanted = int(MAX_STEP_S / max(self._seconds_per_token, 1e-9))
        return max(self._least, min(self._most, wanted // _ROUND_TO * _ROUND_TO))
