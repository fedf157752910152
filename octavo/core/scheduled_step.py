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
        self._running: list[tuple[Request, int, list[list[int]]]] = []
        self._new: list[tuple[Request, int, list[list[int]]]] = []

    def __bool__(self) -> bool:
        return bool(self._running or self._new)

    def add_running(self, request: Request, num_tokens: int, new_blocks: list[list[int]]) -> None:
        """Takes `num_tokens` tokens of a request that the workers know."""
        self._running.append((request, num_tokens, new_blocks))
        self.token_budget -= num_tokens

    def add_new(self, request: Request, num_tokens: int, tables: list[list[int]]) -> None:
        """Takes `num_tokens` tokens of a request that the workers do not know (any more)."""
        self._new.append((request, num_tokens, tables))
        self.token_budget -= num_tokens

    def withdraw(self, request: Request) -> None:
        """Takes a running request out again, if it is in; it loses its blocks."""
        for index, (other, num_tokens, _) in enumerate(self._running):
            if other is request:
                del self._running[index]
                self.token_budget += num_tokens
                return

    def build(self, kv: KVCacheManager, finished_request_ids: list[str]) -> ScheduledStep:
        """Makes the message, and advances the requests to where they are after the step."""
        num_scheduled = {r.request_id: n for r, n, _ in self._running}
        num_scheduled.update((r.request_id, n) for r, n, _ in self._new)
        running = [
            RunningRequestData(r.request_id, blocks, r.num_computed_tokens)
            for r, _, blocks in self._running
        ]
        new = [_new_request_data(r, tables) for r, _, tables in self._new]
        total = sum(num_scheduled.values())
        output = SchedulerOutput(new, running, num_scheduled, total, finished_request_ids)
        entries = self._running + self._new
        return ScheduledStep(output, [r for r, _, _ in entries], self._advance(entries, kv))

    def _advance(
        self, entries: list[tuple[Request, int, list[list[int]]]], kv: KVCacheManager
    ) -> dict[Request, list[int]]:
        """Returns the blocks that get a name with this step."""
        block_size = kv.block_size
        named = {}
        for request, num_tokens, _ in entries:
            computed = request.num_computed_tokens + num_tokens
            request.num_computed_tokens = computed
            num_known = len(request.all_token_ids)
            if computed == num_known + request.num_pending_samples:
                request.num_pending_samples += 1
            if computed % block_size < num_tokens:  # the step completes a block
                blocks = kv.name_full_blocks(request, min(computed, num_known))
                if blocks:
                    named[request] = blocks
        return named


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
