"""One step in the making: what the scheduler has decided so far, until it becomes a message.

Called by: `octavo/core/scheduler.py`. Runs in: EngineCore.
Owns: the step's token budget, and advancing requests when a step is final.
Knows nothing of: queues, who is served first, where blocks come from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.core.kv_cache_manager import KVCacheManager
from octavo.core.request import Request
from octavo.messages.step import NewRequestData, RunningRequestData, SchedulerOutput


@dataclass(slots=True)
class ScheduledStep:
    """A step that has been handed to the executor and whose result is awaited.

    `named` are the blocks that became findable because this step fills them, by request. `void` are
    requests whose result is not to be used.
    """

    output: SchedulerOutput
    requests: list[Request]
    named: dict[Request, list[int]] = field(default_factory=dict)
    void: set[Request] = field(default_factory=set)


class StepBuilder:
    """Collects requests and their number of tokens until the budget is spent.

    Args:
        token_budget: most tokens of the step.
    """

    def __init__(self, token_budget: int) -> None:
        self.token_budget = token_budget  # what is left of it
        self._running: dict[Request, tuple[int, list[list[int]]]] = {}
        self._new: dict[Request, tuple[int, list[list[int]]]] = {}

    def __bool__(self) -> bool:
        return bool(self._running or self._new)

    def add_running(self, request: Request, num_tokens: int, new_blocks: list[list[int]]) -> None:
        """Takes `num_tokens` tokens of a request that the workers know."""
        self._running[request] = (num_tokens, new_blocks)
        self.token_budget -= num_tokens

    def add_new(self, request: Request, num_tokens: int, tables: list[list[int]]) -> None:
        """Takes `num_tokens` tokens of a request that the workers do not know (any more)."""
        self._new[request] = (num_tokens, tables)
        self.token_budget -= num_tokens

    def withdraw(self, request: Request) -> None:
        """Takes a request out again, if it is in; it loses its blocks."""
        num_tokens, _ = self._running.pop(request, (0, None))
        self.token_budget += num_tokens

    def build(self, kv: KVCacheManager, finished_request_ids: list[str]) -> ScheduledStep:
        """Makes the message, and advances the requests to where they are after the step."""
        num_scheduled: dict[str, int] = {}
        running: list[RunningRequestData] = []
        named: dict[Request, list[int]] = {}
        total = 0
        for request, (num_tokens, blocks) in self._running.items():
            running.append(
                RunningRequestData(request.request_id, blocks, request.num_computed_tokens)
            )
            num_scheduled[request.request_id] = num_tokens
            total += num_tokens
            _advance(request, num_tokens, kv, named)
        new = []
        for request, (num_tokens, tables) in self._new.items():
            new.append(_new_request_data(request, tables))
            num_scheduled[request.request_id] = num_tokens
            total += num_tokens
            _advance(request, num_tokens, kv, named)
        output = SchedulerOutput(new, running, num_scheduled, total, finished_request_ids)
        return ScheduledStep(output, [*self._running, *self._new], named)


def _advance(
    request: Request, num_tokens: int, kv: KVCacheManager, named: dict[Request, list[int]]
) -> None:
    computed = request.num_computed_tokens + num_tokens
    request.num_computed_tokens = computed
    num_known = len(request.all_token_ids)
    if computed == num_known + request.num_pending_samples:
        request.num_pending_samples += 1
    if computed % kv.block_size < num_tokens:  # the step completes a block
        blocks = kv.name_full_blocks(request, min(computed, num_known))
        if blocks:
            named[request] = blocks


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
