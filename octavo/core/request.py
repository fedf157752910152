"""One request inside the engine core: the only mutable copy of its state.

Runs in: EngineCore. Owns: the token list, how far it is computed, what is in flight.
Knows nothing of: blocks, other requests, sockets, text.
"""

from __future__ import annotations

from enum import IntEnum

from octavo.core.block_hash import PrefixScope
from octavo.messages.engine import EngineCoreRequest, TokenLogprobs


class RequestStatus(IntEnum):
    """Where a request stands. PREEMPTED requests wait like new ones, but ahead of them."""

    WAITING = 0
    RUNNING = 1
    PREEMPTED = 2
    FINISHED = 3


class Request:
    """State of one request.

    `num_computed_tokens` chases `num_tokens`: there are no prefill and decode phases. It advances
    when a step is scheduled, not when its result is there. `num_pending_samples` counts scheduled
    steps whose sampled token has not come back yet (at most the step depth of the engine, 1 on
    CPU), so a step may be scheduled for "the last token", whatever it will be.

    Args:
        message: the request as it came, already checked by the front end.
        max_model_len: most tokens of any request, prompt and generated.
        index: number of the request in order of arrival at this core; breaks ties.
    """

    __slots__ = (
        "adapter",
        "all_token_ids",
        "arrival_time_s",
        "block_hashes",
        "client_index",
        "end_token_ids",
        "eos_token_ids",
        "has_grammar",
        "index",
        "looks_back",
        "max_num_tokens",
        "max_tokens",
        "message",
        "min_tokens",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_pending_samples",
        "num_preemptions",
        "num_prompt_tokens",
        "num_slots",
        "prefix_leader",
        "prefix_scope",
        "priority",
        "prompt_logprobs",
        "queued_s",
        "repetition_detection",
        "request_id",
        "sampling_params",
        "scheduled_s",
        "status",
        "stop_token_ids",
    )

    def __init__(
        self, message: EngineCoreRequest, *, max_model_len: int, index: int, queued_s: float
    ) -> None:
        params = message.sampling_params
        assert params.max_tokens is not None, "the front end sets max_tokens"
        self.message = message
        self.request_id = message.request_id
        self.index = index
        self.client_index = message.client_index
        self.priority = message.priority
        self.arrival_time_s = message.arrival_time_s
        self.adapter = message.adapter
        self.prefix_scope = PrefixScope(
            message.cache_salt,
            None if message.adapter is None else (message.adapter.name, message.adapter.path),
        )
        self.sampling_params = params
        self.max_tokens: int = params.max_tokens
        self.min_tokens = params.min_tokens
        self.eos_token_ids = frozenset(() if params.ignore_eos else message.eos_token_ids)
        self.stop_token_ids = frozenset(params.stop_token_ids or ())
        self.repetition_detection = params.repetition_detection
        #: a token of these, or this many tokens in all, may end it: see `stop_check.py`
        self.end_token_ids = self.eos_token_ids | self.stop_token_ids
        self.max_num_tokens = min(len(message.prompt_token_ids) + self.max_tokens, max_model_len)

        self.all_token_ids = list(message.prompt_token_ids)  # prompt, then generated
        self.num_prompt_tokens = len(self.all_token_ids)
        self.num_computed_tokens = 0
        self.num_slots = 0  # tokens for which it has blocks
        self.num_pending_samples = 0
        self.has_grammar = False
        self.looks_back = False  # must know its last token before the next is scheduled
        self.block_hashes: list[bytes] = []  # of the full blocks of all_token_ids, as far as made

        #: while it waits: the running request that computes the block it lacks
        self.prefix_leader: Request | None = None
        #: gathered over the chunks of the prompt; they go out with the first token
        self.prompt_logprobs: list[TokenLogprobs | None] = []

        self.status = RequestStatus.WAITING
        self.num_cached_tokens: int | None = None  # prefix hit of the first admission
        self.num_preemptions = 0
        self.queued_s = queued_s
        self.scheduled_s = 0.0

    @property
    def num_tokens(self) -> int:
        """Prompt and generated tokens known so far."""
        return len(self.all_token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Generated tokens known so far."""
        return len(self.all_token_ids) - self.num_prompt_tokens

    def num_tokens_of_kind(self, num_computed: int) -> int:
        """Most tokens from position `num_computed` on that a step may take together: those of the
        prompt or, behind it, generated ones."""
        left = self.num_prompt_tokens - num_computed
        return left if left > 0 else self.max_num_tokens

    @property
    def is_finished(self) -> bool:
        """True once the request has ended, for whatever reason."""
        return self.status is RequestStatus.FINISHED

    @property
    def reads_prefix_cache(self) -> bool:
        """False for requests that want a value for every prompt position, and for those that ask
        for it: they compute it all."""
        params = self.sampling_params
        return params.prompt_logprobs is None and not params.skip_reading_prefix_cache

    def sort_key(self) -> tuple[int, float, int]:
        """Order under the priority policy: the smallest is served first, the largest preempted."""
        return self.priority, self.arrival_time_s, self.index
