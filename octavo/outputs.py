"""What the engine gives back to its callers: `RequestOutput` and its parts, with vLLM's names.

Made in: `octavo/frontend/output_processor.py`. Read by: `octavo/api`, `octavo/llm.py` and users.
Knows nothing of: HTTP, the engine core.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import overload


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


class FlatLogprobs(MutableSequence[PositionLogprobs]):
    """Logprobs of many positions in a few flat lists: few objects for the garbage collector
    (`SamplingParams.flat_logprobs`).

    Reads like a list of dicts, which are made when they are read. Position i has the candidates
    from `start_indices[i]` to `end_indices[i]` of the four other lists.
    """

    def __init__(self, positions: Iterable[PositionLogprobs] = ()) -> None:
        self.start_indices: list[int] = []
        self.end_indices: list[int] = []
        self.token_ids: list[int] = []
        self.logprobs: list[float] = []
        self.ranks: list[int | None] = []
        self.decoded_tokens: list[str | None] = []
        self.extend(positions)

    def append(self, value: PositionLogprobs) -> None:
        """Adds a position."""
        self.start_indices.append(len(self.token_ids))
        for token_id, candidate in value.items():
            self.token_ids.append(token_id)
            self.logprobs.append(candidate.logprob)
            self.ranks.append(candidate.rank)
            self.decoded_tokens.append(candidate.decoded_token)
        self.end_indices.append(len(self.token_ids))

    def __len__(self) -> int:
        return len(self.start_indices)

    @overload
    def __getitem__(self, index: int) -> PositionLogprobs: ...
    @overload
    def __getitem__(self, index: slice) -> FlatLogprobs: ...
    def __getitem__(self, index: int | slice) -> PositionLogprobs | FlatLogprobs:
        if isinstance(index, slice):
            return FlatLogprobs(self[i] for i in range(*index.indices(len(self))))
        return {
            self.token_ids[i]: Logprob(self.logprobs[i], self.ranks[i], self.decoded_tokens[i])
            for i in range(self.start_indices[index], self.end_indices[index])
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __setitem__(self, index: object, value: object) -> None:
        raise TypeError("positions of FlatLogprobs cannot be replaced")

    def __delitem__(self, index: object) -> None:
        raise TypeError("positions of FlatLogprobs cannot be removed")

    def insert(self, index: int, value: PositionLogprobs) -> None:
        """Not possible; positions are only appended."""
        raise TypeError("positions of FlatLogprobs can only be appended")


#: a list, or with `flat_logprobs` a `FlatLogprobs`
LogprobsList = MutableSequence[PositionLogprobs]


@dataclass(slots=True)
class CompletionOutput:
    """One of a request's `n` outputs. With `RequestOutputKind.DELTA` the fields hold only what is
    new."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: LogprobsList | None = None
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
