"""One step in the making: what the scheduler has decided so far, until it becomes a message.

Called by: `octavo/core/scheduler.py`. Runs in: EngineCore.
Owns: the step's token budget, and advancing requests when a step is final.
Knows nothing of: queues, who is served first, where blocks come from.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from octavo.core.kv_cache_manager import KVCacheManager
from octavo.core.request import Request
from octavo.core.step_limit import StepLoad
from octavo.messages.step import NewRequestData, SchedulerOutput

#: what is in the step, tokens wanted, tokens of the request before them -> tokens it may have
ChunkSize = Callable[[StepLoad, int, int], int]


def any_size(load: StepLoad, num_tokens: int, num_computed: int) -> int:
    """Chunks are as long as the token budget allows."""
    return num_tokens


class ScheduledStep(msgspec.Struct):
    """A step that has been handed to the executor and whose result is awaited.

    `load` is what it has to compute, if there is a chunk of a prompt in it. `named` are the blocks
    that became findable because this step fills them, by request. `void` are requests whose result
    is not to be used.
    """

    output: SchedulerOutput
    requests: list[Request]
    load: StepLoad
    named: dict[Request, list[int]] = {}
    void: set[Request] = set()


class StepBuilder:
    """Collects requests and their number of tokens until the budget is spent.

    A request that is added is advanced at once to where it is after the step; so those that are
    admitted later in the same step find the blocks it computes. Running requests come first and may
    be withdrawn again, as long as nobody is admitted.

    Args:
        token_budget: most tokens of the step.
        kv: gives names to the blocks that the step completes.
        chunk_size: limits chunks further, by what they cost.
    """

    def __init__(
        self, token_budget: int, kv: KVCacheManager, chunk_size: ChunkSize = any_size
    ) -> None:
        self.token_budget = token_budget  # what is left of it
        self._kv = kv
        self._block_size = kv.block_size
        self._chunk_size = chunk_size
        self._has_chunks = False
        self._new: list[NewRequestData] = []
        self._new_block_ids: dict[str, list[list[int]]] = {}
        self._requests: list[Request] = []
        self._drawing: list[Request] = []  # those of which the step draws a token
        self._num_scheduled: dict[str, int] = {}
        self._named: dict[Request, list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._requests)

    def chunk(self, num_tokens: int, num_computed: int) -> int:
        """How many of a request's next `num_tokens` tokens, with `num_computed` before them, the
        step has room for; 0: none, it must wait."""
        self._has_chunks = True
        return self._chunk_size(self._load(), min(num_tokens, self.token_budget), num_computed)

    def add(self, request: Request, num_tokens: int) -> None:
        """Takes `num_tokens` tokens of a request that the workers know."""
        self.token_budget -= num_tokens
        self._requests.append(request)
        self._num_scheduled[request.request_id] = num_tokens
        computed = request.num_computed_tokens + num_tokens
        request.num_computed_tokens = computed
        num_known, pending = len(request.all_token_ids), request.num_pending_samples
        if computed == num_known + pending:
            request.num_pending_samples = pending + 1
            self._drawing.append(request)
        if computed % self._block_size < num_tokens:  # the step completes a block
            blocks = self._kv.name_full_blocks(request, min(computed, num_known))
            if blocks:
                self._named[request] = blocks

    def add_new(self, request: Request, num_tokens: int, tables: list[list[int]]) -> None:
        """Takes `num_tokens` tokens of a request that the workers do not know (any more)."""
        self._new.append(_new_request_data(request, tables))
        self.add(request, num_tokens)

    def add_blocks(self, request: Request, block_ids: list[list[int]]) -> None:
        """The tables of a request that the workers know grow by these blocks, per KV group."""
        self._new_block_ids[request.request_id] = block_ids

    def withdraw(self, request: Request) -> None:
        """Takes a running request out again, if it is in; it is about to lose its blocks."""
        num_tokens = self._num_scheduled.pop(request.request_id, None)
        if num_tokens is None:
            return
        self.token_budget += num_tokens
        self._requests.remove(request)
        self._new_block_ids.pop(request.request_id, None)
        request.num_computed_tokens -= num_tokens
        if request in self._drawing:
            self._drawing.remove(request)
            request.num_pending_samples -= 1
        self._kv.unname(self._named.pop(request, []))  # nobody has found them yet

    def build(self, finished_request_ids: list[str]) -> ScheduledStep:
        """Makes the message."""
        total = sum(self._num_scheduled.values())
        output = SchedulerOutput(
            self._new, self._new_block_ids, self._num_scheduled, total, finished_request_ids
        )
        load = self._load() if self._has_chunks else StepLoad(total)
        return ScheduledStep(output, self._requests, load, self._named)

    def _load(self) -> StepLoad:
        """What is in the step so far. Made anew where it is asked for, since most steps decode and
        nobody asks."""
        load = StepLoad()
        for request, num_tokens in zip(self._requests, self._num_scheduled.values(), strict=True):
            load.add(num_tokens, request.num_computed_tokens - num_tokens)
        return load


def _new_request_data(request: Request, tables: list[list[int]]) -> NewRequestData:
    return NewRequestData(
        request_id=request.request_id,
        token_ids=list(request.all_token_ids),
        num_prompt_tokens=request.num_prompt_tokens,
        sampling_params=request.sampling_params,
        block_ids=tables,
        num_computed_tokens=request.num_computed_tokens,
        eos_token_ids=request.message.eos_token_ids,
    )
