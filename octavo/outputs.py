"""What the engine gives back to its callers: `RequestOutput` and its parts, with vLLM's names.

Made in: `octavo/frontend/output_processor.py`. Read by: `octavo/api`, `octavo/llm.py` and users.
Knows nothing of: HTTP, the engine core.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Logprob:
    """One candidate token at one position.

    `logprob` is natural-log probability, `rank` counts from 1 in the vocabulary, `decoded_token` is
    its text (U+FFFD where the token alone is not valid UTF-8).
    """

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


#: position -> {token_id: Logprob}; the chosen token comes first, then the top candidates by rank.
PositionLogprobs = dict[int, Logprob]


@dataclass(slots=True)
class CompletionOutput:
    """One of a request's `n` outputs. With `RequestOutputKind.DELTA` the fields hold only what is
    new."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[PositionLogprobs] | None = None
    finish_reason: str | None = None  # stop, length, abort, error, repetition
    stop_reason: int | str | None = None  # the stop token id or the stop string that ended it

    def finished(self) -> bool:
        """True once this output will not grow."""
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestMetrics:
    """When things happened to a request: seconds of `time.monotonic()`, except `arrival_time_s`
    (Unix time)."""

    arrival_time_s: float = 0.0
    queued_s: float = 0.0
    scheduled_s: float = 0.0
    first_token_s: float = 0.0
    last_token_s: float = 0.0
    num_generation_tokens: int = 0


@dataclass(slots=True)
class RequestOutput:
    """The state of one request as its caller sees it."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    prompt_logprobs: list[PositionLogprobs | None] | None = None
    num_cached_tokens: int | None = None
    metrics: RequestMetrics = field(default_factory=RequestMetrics)
