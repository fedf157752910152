"""What happened in one step, as numbers: made by the output processor, read by the recorders.

Runs in: API process, or the user's process offline. Owns: nothing.
Knows nothing of: Prometheus, log lines, text.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from octavo.messages.engine import SchedulerStats


class FinishedRequestStats(msgspec.Struct):
    """One ended output (each of a request's `n` counts). Times are seconds; None where the request
    ended before that phase was complete."""

    finish_reason: str  # stop, length, abort, error, repetition
    num_prompt_tokens: int
    num_cached_tokens: int
    num_generation_tokens: int
    max_tokens: int
    num_preemptions: int
    e2e_s: float  # arrival to the last output
    queue_s: float | None = None  # arrival in the core to first scheduled
    prefill_s: float | None = None  # first scheduled to first token
    decode_s: float | None = None  # first token to last token
    inference_s: float | None = None  # first scheduled to last token
    time_per_output_token_s: float | None = None  # mean over all tokens but the first


class IterationStats(msgspec.Struct):
    """Sums over the requests of one step."""

    num_prompt_tokens: int = 0  # of prompts whose first token came in this step
    num_cached_tokens: int = 0  # of those prompts, found in the prefix cache
    num_generation_tokens: int = 0
    time_to_first_token_s: list[float] = []
    inter_token_latency_s: list[float] = []
    finished: list[FinishedRequestStats] = []
    #: (n, largest number of tokens of one output) of each request whose outputs have all ended
    completed: list[tuple[int, int]] = []


class StatsRecorder(Protocol):
    """Takes what happened in one step. Called on the hot path: must be cheap."""

    def record(self, scheduler: SchedulerStats | None, iteration: IterationStats) -> None: ...
