"""How much prefill a step may have so that it does not take too long.

A step delays every stream, every abort and the shutdown by its length. What a token costs depends
on the machine, on who else uses it, and on the context it attends to: at a context of some thousand
tokens attention costs more than everything else. So time is what is budgeted: seconds per token
plus seconds per token and token attended to, both learned from what steps take, beginning with the
warm-up.

Called by: `octavo/core/engine_core.py` (tells how long steps took), `octavo/core/scheduled_step.py`
(asks for chunks). Runs in: EngineCore. Owns: the estimate of what steps cost.
Knows nothing of: requests, queues, where the times come from.
"""

from __future__ import annotations

import logging

import msgspec

from octavo.config.engine import SchedulerConfig

logger = logging.getLogger(__name__)

#: a step with a chunk of a prompt should take at most this long
MAX_STEP_S = 0.4
#: share of it that the first chunk of a step may take, however long decoding takes
MIN_CHUNK_SHARE = 0.25
#: the first chunk of a step has at least so many tokens: fewer would cost nearly the same
MIN_CHUNK_TOKENS = 16
#: until something is learned: tokens of context whose attention costs as much as the token itself
_CONTEXT_LIKE_A_TOKEN = 1000
#: one step counts at most as this many times what was expected: others may have stopped it
_MAX_SURPRISE = 2.0
_ROUND_TO = 16


class StepLoad(msgspec.Struct):
    """What a step has to compute: its tokens, and for each the tokens it attends to, summed up."""

    num_tokens: int = 0
    num_attended: float = 0.0
    num_chunks: int = 0  # parts of prompts in it

    def add(self, num_tokens: int, num_computed: int) -> None:
        """Adds tokens of a request that has `num_computed` before them."""
        self.num_tokens += num_tokens
        self.num_attended += num_tokens * (num_computed + num_tokens / 2)
        self.num_chunks += num_tokens > 1


class StepCost:
    """What steps cost, learned from those there were: `token_s` seconds per token and `attended_s`
    per token attended to.

    A Kalman filter (Kalman 1960, A new approach to linear filtering and prediction problems) whose
    state are the two costs: long contexts teach about attention, short ones about the rest, and a
    machine that becomes slower does so in both.
    """

    #: relative standard deviations: of a step's time, of what changes from step to step
    _NOISE, _DRIFT = 0.1, 0.1
    #: share of the drift that both costs have in common
    _COMMON = 0.9
    #: the costs are never less certain than these
    _MAX_TOKEN_DEVIATION, _MAX_ATTENDED_DEVIATION = 0.5, 2.0

    def __init__(self, token_s: float) -> None:
        self.token_s = max(token_s, 1e-9)
        self.attended_s = self.token_s / _CONTEXT_LIKE_A_TOKEN
        # covariances of the two estimates
        self._tt = (0.2 * self.token_s) ** 2  # from the warm-up
        self._ta = 0.0
        self._aa = (self._MAX_ATTENDED_DEVIATION * self.attended_s) ** 2

    def seconds(self, load: StepLoad) -> float:
        """How long a step would take."""
        return load.num_tokens * self.token_s + load.num_attended * self.attended_s

    def num_tokens(self, seconds: float, num_computed: int) -> int:
        """The longest chunk after `num_computed` tokens that takes at most so long."""
        # n tokens take n * linear + n^2 * square seconds
        square = self.attended_s / 2
        linear = self.token_s + self.attended_s * num_computed
        return int(2 * seconds / (linear + (linear * linear + 4 * square * seconds) ** 0.5))

    def observe(self, load: StepLoad, step_s: float) -> None:
        """Learns that a step took `step_s` seconds."""
        t, a = load.num_tokens, load.num_attended
        self._drift()
        expected_s = self.seconds(load)
        step_s = min(max(step_s, expected_s / _MAX_SURPRISE), expected_s * _MAX_SURPRISE)
        of_token = t * self._tt + a * self._ta
        of_attended = t * self._ta + a * self._aa
        variance = t * of_token + a * of_attended + (self._NOISE * expected_s) ** 2
        token_gain, attended_gain = of_token / variance, of_attended / variance
        error_s = step_s - expected_s
        self.token_s = max(self.token_s + token_gain * error_s, self.token_s / 2)
        self.attended_s = max(self.attended_s + attended_gain * error_s, self.attended_s / 2)
        self._tt -= token_gain * of_token
        self._ta -= token_gain * of_attended
        self._aa -= attended_gain * of_attended

    def _drift(self) -> None:
        drift = self._DRIFT**2
        self._tt += drift * self.token_s**2
        self._ta += drift * self._COMMON * self.token_s * self.attended_s
        self._aa += drift * self.attended_s**2
        too_token = self._MAX_TOKEN_DEVIATION * self.token_s / self._tt**0.5
        if too_token < 1:
            self._tt *= too_token**2
            self._ta *= too_token
        too_attended = self._MAX_ATTENDED_DEVIATION * self.attended_s / self._aa**0.5
        if too_attended < 1:
            self._aa *= too_attended**2
            self._ta *= too_attended


class StepLimit:
    """Sizes the chunks of prompts.

    Decoding is never limited: every running request gets its token in every step. A given
    `max_num_batched_tokens` is kept, and so is one that must hold whole prompts: then chunks are
    not limited either.

    Args:
        config: budgets.
        full_step_s: seconds of a step of `max_num_batched_tokens` tokens, from the warm-up.
    """

    def __init__(self, config: SchedulerConfig, full_step_s: float) -> None:
        most = config.max_num_batched_tokens
        self._is_fixed = config.max_num_batched_tokens_is_given or not config.enable_chunked_prefill
        self._most = most
        self._cost = StepCost(full_step_s / most)
        #: tokens of the first chunk of a prompt that is alone, for those who want to know
        self.num_tokens = self.chunk(StepLoad(), most, 0)
        if self.num_tokens < most:
            logger.info(
                "Steps have at most %d tokens of a prompt for now, instead of %d: a full step "
                "would take %.2f s and delay every stream that long (--max-num-batched-tokens "
                "keeps a value)",
                self.num_tokens,
                most,
                full_step_s,
            )

    def chunk(self, load: StepLoad, num_tokens: int, num_computed: int) -> int:
        """How many of `num_tokens` tokens of a prompt a step should take.

        Args:
            load: what is in the step already.
            num_computed: tokens of the request before them.

        Returns:
            At least one for the first chunk of a step; 0: the request must wait.
        """
        if self._is_fixed:
            return num_tokens
        left_s = MAX_STEP_S - self._cost.seconds(load)
        if not load.num_chunks:
            left_s = max(left_s, MAX_STEP_S * MIN_CHUNK_SHARE)
        elif left_s <= 0:
            return 0
        fits = self._cost.num_tokens(left_s, num_computed) // _ROUND_TO * _ROUND_TO
        if not load.num_chunks:
            fits = max(fits, MIN_CHUNK_TOKENS)
        return min(num_tokens, fits)

    def observe(self, load: StepLoad, step_s: float) -> None:
        """A step took `step_s` seconds.

        Steps without a chunk say little about those with one: most of their time does not grow with
        tokens.
        """
        if load.num_chunks and load.num_tokens >= MIN_CHUNK_TOKENS:
            self._cost.observe(load, step_s)
