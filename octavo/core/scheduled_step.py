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

    Running requests come first and may be withdrawn again; once `seal_running` is called they, and
    each new request at once, are advanced to where they are after the step. So a request finds the
    blocks that another one computes in the same step.

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
        self._chunk_size = chunk_size
        self._has_chunks = False
        self._picked: list[tuple[Request, int, list[list[int]]]] = []
        self._new_block_ids: dict[str, list[list[int]]] = {}
        self._new: list[NewRequestData] = []
        self._requests: list[Request] = []
        self._num_scheduled: dict[str, int] = {}
        self._named: dict[Request, list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._num_scheduled or self._picked)

    def chunk(self, num_tokens: int, num_computed: int) -> int:
        """How many of a request's next `num_tokens` tokens, with `num_computed` before them, the
        step has room for; 0: none, it must wait."""
        self._has_chunks = True
        return self._chunk_size(self._load(), min(num_tokens, self.token_budget), num_computed)

    def add_running(self, request: Request, num_tokens: int, new_blocks: list[list[int]]) -> None:
        """Takes `num_tokens` tokens of a request that the workers know."""
        self._picked.append((request, num_tokens, new_blocks))
        self.token_budget -= num_tokens

    def withdraw(self, request: Request) -> None:
        """Takes a running request out again, if it is in; it loses its blocks."""
        for index, (other, num_tokens, _) in enumerate(self._picked):
            if other is request:
                del self._picked[index]
                self.token_budget += num_tokens
                return

    def seal_running(self) -> None:
        """No running request is added or withdrawn after this."""
        picked, self._picked = self._picked, []
        no_new_blocks = self._kv.no_new_blocks
        for request, _, blocks in picked:
            if blocks is not no_new_blocks:
                self._new_block_ids[request.request_id] = blocks
        self._advance(picked)

    def add_new(self, request: Request, num_tokens: int, tables: list[list[int]]) -> None:
        """Takes `num_tokens` tokens of a request that the workers do not know (any more)."""
        self._new.append(_new_request_data(request, tables))
        self.token_budget -= num_tokens
        self._advance([(request, num_tokens, tables)])

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
        for request, num_tokens, _ in self._picked:
            load.add(num_tokens, request.num_computed_tokens)
        for request in self._requests:  # advanced already
            num_tokens = self._num_scheduled[request.request_id]
            load.add(num_tokens, request.num_computed_tokens - num_tokens)
        return load

    def _advance(self, entries: list[tuple[Request, int, list[list[int]]]]) -> None:
        block_size, num_scheduled = self._kv.block_size, self._num_scheduled
        for request, num_tokens, _ in entries:
            self._requests.append(request)
            num_scheduled[request.request_id] = num_tokens
            computed = request.num_computed_tokens + num_tokens
            request.num_computed_tokens = computed
            num_known = len(request.all_token_ids)
            if computed == num_known + request.num_pending_samples:
                request.num_pending_samples += 1
            if computed % block_size < num_tokens:  # the step completes a block
                blocks = self._kv.name_full_blocks(request, min(computed, num_known))
                if blocks:
                    self._named[request] = blocks


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
