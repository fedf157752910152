"""How much prefill a step may have so that it does not take too long.

A step delays every stream, every abort and the shutdown by its length. What a token costs depends
on the machine, on who else uses it, and on the context it attends to: at a context of some thousand
tokens attention costs more than everything else. So time is what is budgeted: seconds per step, per
token and per token attended to, learned from what steps take, beginning with the warm-up.

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
#: so it is planned to take this long: half of all estimates are too low
_PLANNED_STEP_S = 0.36
#: share of it that the first chunk of a step may take, however long decoding takes
MIN_CHUNK_SHARE = 0.25
#: the first chunk of a step has at least so many tokens: fewer would cost nearly the same
MIN_CHUNK_TOKENS = 16
#: until something is learned: tokens of context whose attention costs as much as the token itself
_CONTEXT_LIKE_A_TOKEN = 1000
#: one step counts at most as this many times what was expected: others may have stopped it
_MAX_SURPRISE = 2.0
#: relative standard deviations: of a step's time, of what changes from step to step
_NOISE, _DRIFT = 0.1, 0.1
#: share of the drift that costs per token have in common
_COMMON_DRIFT = 0.9
#: seconds, of what a step costs whatever is in it: there may be so much of it at any time
_STEP_DEVIATION_S = 0.02
#: costs are never less certain than this, relative to themselves
_MAX_DEVIATIONS = (1.0, 0.5, 2.0)
#: steps that only decode are looked at so often
_DECODE_INTERVAL = 8
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
    """What steps cost, learned from those there were: seconds per step whatever is in it, per token
    and per token attended to.

    A Kalman filter (Kalman 1960, A new approach to linear filtering and prediction problems) whose
    state are the three costs. Steps that only decode teach about the first, short prompts about the
    second, long ones about the third; a machine that becomes slower does so in the last two alike.

    Args:
        token_s: seconds per token, from the warm-up.
    """

    def __init__(self, token_s: float) -> None:
        token_s = max(token_s, 1e-9)
        self._costs = [0.0, token_s, token_s / _CONTEXT_LIKE_A_TOKEN]
        deviations = (_STEP_DEVIATION_S, 0.2 * token_s, _MAX_DEVIATIONS[2] * self._costs[2])
        #: covariances of the errors of the three
        self._errors = [[0.0] * 3 for _ in deviations]
        for i, deviation in enumerate(deviations):
            self._errors[i][i] = deviation**2

    def seconds(self, load: StepLoad) -> float:
        """How long a step would take."""
        step_s, token_s, attended_s = self._costs
        return step_s + load.num_tokens * token_s + load.num_attended * attended_s

    def num_tokens(self, seconds: float, num_computed: int) -> int:
        """The longest chunk after `num_computed` tokens that adds at most so much to a step."""
        # n tokens take n * linear + n^2 * square seconds
        _, token_s, attended_s = self._costs
        square, linear = attended_s / 2, token_s + attended_s * num_computed
        return int(2 * seconds / (linear + (linear * linear + 4 * square * seconds) ** 0.5))

    def observe(self, load: StepLoad, step_s: float) -> None:
        """Learns that a step took `step_s` seconds."""
        self._drift()
        costs, errors = self._costs, self._errors
        parts = (1.0, load.num_tokens, load.num_attended)
        expected_s = self.seconds(load)
        noise_s = _NOISE * expected_s
        most_s = max(expected_s * _MAX_SURPRISE, _STEP_DEVIATION_S)
        error_s = min(max(step_s, expected_s / _MAX_SURPRISE), most_s) - expected_s
        shares = [sum(e * part for e, part in zip(row, parts, strict=True)) for row in errors]
        variance = sum(s * part for s, part in zip(shares, parts, strict=True)) + noise_s**2
        for i, share in enumerate(shares):
            gain = share / variance
            costs[i] = max(costs[i] + gain * error_s, costs[i] / 2)
            for j in range(3):
                errors[i][j] -= gain * shares[j]

    def _drift(self) -> None:
        """Between two steps the machine may change: all costs become less certain, to a limit."""
        costs, errors = self._costs, self._errors
        _, token_s, attended_s = costs
        drift = _DRIFT**2
        errors[0][0] += (_DRIFT * max(costs[0], _STEP_DEVIATION_S)) ** 2
        errors[1][1] += drift * token_s**2
        errors[2][2] += drift * attended_s**2
        errors[1][2] += drift * _COMMON_DRIFT * token_s * attended_s
        errors[2][1] = errors[1][2]
        for i, most in enumerate(_MAX_DEVIATIONS):
            limit = most * costs[i] if i else max(most * costs[i], _STEP_DEVIATION_S)
            excess = errors[i][i] / limit**2
            if excess > 1:
                scale = excess**-0.5
                for j in range(3):
                    errors[i][j] *= scale
                    errors[j][i] *= scale


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
        self._num_decodes = 0
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
        left_s = _PLANNED_STEP_S - self._cost.seconds(load)
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

        Of steps that only decode every few are looked at: there are many, and they teach only what
        a step costs at least.
        """
        if not load.num_chunks:
            self._num_decodes += 1
            if self._num_decodes % _DECODE_INTERVAL:
                return
        self._cost.observe(load, step_s)
