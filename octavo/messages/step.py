"""EngineCore <-> worker: what one step must compute and what came out.

Full data of a request is sent once (`NewRequestData`), then only what the worker cannot know: it
counts by itself how far each request is computed.

Written by: `octavo/core/scheduler.py` and `octavo/worker/model_runner.py`. Knows nothing of:
sockets, HTTP, text.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from octavo.messages.engine import TokenLogprobs
from octavo.sampling_params import SamplingParams


class NewRequestData(msgspec.Struct, array_like=True, gc=False):
    """A request's first step on this worker (also its first step after preemption)."""

    request_id: str
    token_ids: list[int]  # prompt, and after preemption also the tokens generated so far
    num_prompt_tokens: int
    sampling_params: SamplingParams
    block_ids: list[list[int]]  # per KV group
    num_computed_tokens: int
    eos_token_ids: list[int] = []  # masked while fewer than min_tokens are generated


class SchedulerOutput(msgspec.Struct, array_like=True):
    """One step. A request samples a token iff its scheduled tokens reach the end of what it has.
    Its scheduled tokens are all of its prompt or all generated.

    `finished_request_ids` come first: a request that was preempted and is resumed is in both lists.
    """

    new_requests: list[NewRequestData]
    # of requests the worker knows, where their table grows: per KV group what is appended
    new_block_ids: dict[str, list[list[int]]]
    num_scheduled_tokens: dict[str, int]  # request_id -> tokens computed in this step
    total_num_scheduled_tokens: int
    finished_request_ids: list[str]  # ended or preempted since the last step: forget their rows
    # of the requests that sample, those with a grammar; their masks come while `forward` runs
    grammar_request_ids: list[str] = []


class GrammarMasks(msgspec.Struct):
    """What the grammars of a step allow, per request in the order in which they were named.

    A matcher is asked by the sampler, in the same process: `matcher_calls` are the addresses of
    `ov_matcher_calls` (csrc/include/octavo.h). Requests without one have a mask.
    """

    words: (
        memoryview  # uint32 [requests without a matcher, ceil(vocab_size / 32)]: a bit is allowed
    )
    matchers: list[int]  # addresses; 0: none
    matcher_calls: tuple[int, int] = (0, 0)


class PendingMasks(Protocol):
    """Tokens that grammars allow, while they are being found."""

    def pause(self) -> None:
        """The processors are needed until the result is: nothing further is begun."""
        ...

    def result(self) -> GrammarMasks:
        """Waits for them. Never raises."""
        ...


class ModelRunnerOutput(msgspec.Struct, array_like=True):
    """Result of one step. Requests whose prefill is not complete have an empty list."""

    sampled_token_ids: dict[str, list[int]]  # request_id -> new tokens (a variable number)
    # one per new token, for requests that asked
    logprobs: dict[str, list[TokenLogprobs]] | None = None
    prompt_logprobs: dict[str, list[TokenLogprobs | None]] | None = None
    failed: dict[str, str] | None = None  # request_id -> one sentence; only these requests end
    # of the failed ones: those that failed because of what they asked for
    unservable: list[str] | None = None
    backend_s: float = 0.0  # of the step's time: inside the backend
