"""Who starts next: waiting requests in their order, while there are budget, rows and blocks.

A request is admitted with its prefix hit and its first chunk. By default it is admitted only if
the blocks for all the tokens it has will be there, those promised to others before it counted.

Called by: `octavo/core/scheduler.py`. Uses: `request_queue.py`, `blocks_underway.py`,
`kv_cache_manager.py`.
Runs in: EngineCore. Owns: waiting requests, counts of prefix hits.
Knows nothing of: running requests' order, results, outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from octavo.config.engine import SchedulerConfig
from octavo.core.blocks_underway import BlocksUnderway
from octavo.core.kv_cache_manager import KVCacheManager, PrefixHit
from octavo.core.request import Request, RequestStatus
from octavo.core.request_queue import make_request_queue
from octavo.core.scheduled_step import StepBuilder
from octavo.messages.engine import PrefixCacheStats
from octavo.structured_output.manager import StructuredOutputManager


class Admission:
    """The waiting requests of one engine core.

    Args:
        config: budgets and policy.
        kv: the blocks.
        structured_output: says whose grammar is not ready.
        clock: seconds, for the time of a request's first admission.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVCacheManager,
        structured_output: StructuredOutputManager,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._kv = kv
        self._structured_output = structured_output
        self._clock = clock
        self._watermark_blocks = int(config.watermark * kv.num_usable_blocks)
        self._queue = make_request_queue(config.policy)
        # (request, free blocks) when admission last failed: no use trying before there are more
        self._short: tuple[Request, int] | None = None
        self._prefix_queries = self._prefix_hits = 0

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, request: Request) -> None:
        """Queues a request, new or preempted, in its place."""
        self._queue.add(request)

    def remove(self, request: Request) -> None:
        """Forgets a waiting request."""
        self._queue.remove(request)

    def take_prefix_stats(self) -> PrefixCacheStats:
        """Counts since the last call."""
        stats = PrefixCacheStats(self._prefix_queries, self._prefix_hits)
        self._prefix_queries = self._prefix_hits = 0
        return stats

    def admit(self, step: StepBuilder, running: list[Request], *, max_chunk: int) -> None:
        """Starts waiting requests: they join `step` and the end of `running`.

        Args:
            max_chunk: most tokens of one request in the step.
        """
        queue, max_num_seqs = self._queue, self._config.max_num_seqs
        if not queue or step.token_budget <= 0 or len(running) >= max_num_seqs:
            return
        underway = BlocksUnderway(self._kv, running)
        passed: list[Request] = []
        num_seats_kept = 0
        reserved = self._blocks_promised(running)
        while queue and step.token_budget > 0 and len(running) + num_seats_kept < max_num_seqs:
            request = queue.peek()
            if self._is_known_short(request, running):
                break
            if not self._is_ready(request):
                passed.append(queue.pop())
                continue
            hit = underway.find_prefix(request)
            if hit is None:
                # those behind it may pass, but not take its place
                passed.append(queue.pop())
                num_seats_kept += 1
                reserved += self._blocks_kept(request)
                continue
            reserved_by_it = self._try_to_start(request, hit, step, running, max_chunk, reserved)
            if reserved_by_it is None:
                break
            underway.add(request)
            reserved += reserved_by_it
        for request in passed:
            queue.add(request)

    def _is_ready(self, request: Request) -> bool:
        # a resumed request may have a token on its way: how long it is, is not known yet
        if request.num_pending_samples:
            return False
        return self._structured_output.is_ready(request.request_id)

    def _is_known_short(self, request: Request, running: list[Request]) -> bool:
        """True if it lacked blocks before and there are no more of them now."""
        if self._short is None or not running:
            return False
        short_request, free = self._short
        return short_request is request and self._kv.num_free_blocks <= free

    def _blocks_kept(self, request: Request) -> int:
        """Blocks that a request which waits for another's prefix will need beyond it."""
        leader = request.prefix_leader
        if leader is None or not self._config.scheduler_reserve_full_isl:
            return 0
        return self._kv.num_blocks_later(request, leader.num_computed_tokens)

    def _try_to_start(
        self,
        request: Request,
        hit: PrefixHit,
        step: StepBuilder,
        running: list[Request],
        max_chunk: int,
        reserved: int,
    ) -> int | None:
        """
        Args:
            reserved: blocks that requests which come before it will need for tokens they have
                already.

        Returns:
            The blocks it will need beyond this step for the tokens it has, or None if it must wait.
        """
        kv = self._kv
        remaining = request.num_tokens - hit.num_tokens
        if remaining > step.token_budget and not self._config.enable_chunked_prefill and step:
            return None
        most = min(remaining, max_chunk, request.num_tokens_of_kind(hit.num_tokens))
        num_tokens = step.chunk(most, hit.num_tokens)
        if not num_tokens:
            return None
        later = 0
        if self._config.scheduler_reserve_full_isl:
            later = kv.num_blocks_later(request, hit.num_tokens + num_tokens)
        keep_free = reserved + later + self._watermark_blocks if running else 0
        tables = kv.admit(request, hit, num_tokens, keep_free=keep_free)
        if tables is None:
            self._short = (request, kv.num_free_blocks)
            return None
        self._short = None
        self._start(request, hit.num_tokens)
        running.append(request)
        step.add_new(request, num_tokens, tables)
        return later

    def _start(self, request: Request, num_cached_tokens: int) -> None:
        self._queue.remove(request)
        if request.num_cached_tokens is None:  # a resumed request finds mostly its own blocks
            request.num_cached_tokens = num_cached_tokens
            request.scheduled_s = self._clock()
            if request.reads_prefix_cache and self._kv.enable_caching:
                self._prefix_queries += request.num_tokens
                self._prefix_hits += num_cached_tokens
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = num_cached_tokens

    def _blocks_promised(self, running: Iterable[Request]) -> int:
        """Blocks that running requests still need for prompts that are not fully computed."""
        if not self._config.scheduler_reserve_full_isl:
            return 0
        return sum(
            self._kv.num_blocks_later(request, request.num_computed_tokens)
            for request in running
            if request.num_computed_tokens < request.num_tokens - 1
        )
