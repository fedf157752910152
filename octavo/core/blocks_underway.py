"""Blocks that running requests are computing for themselves and waiting ones could share.

Two long prompts with a common beginning arrive together. The first one gets a chunk per step; the
second would find in the cache what the first has computed so far, and then compute the rest a
second time beside it. It waits instead: as long as the block it lacks is the very one that a
running request computes next. A request that runs gets on or leaves, so nobody waits for ever: if
the other is aborted, preempted, fails or ends, the waiting one goes on from where the cache is.

Called by: `octavo/core/admission.py`. Runs in: EngineCore. Owns: who waits for whom.
Knows nothing of: budgets, the order of requests.
"""

from __future__ import annotations

from octavo.core.kv_cache_manager import KVCacheManager, PrefixHit
from octavo.core.request import Request, RequestStatus


class BlocksUnderway:
    """Looks at the running requests of one step in the making.

    Args:
        kv: names of blocks.
        running: the running requests; those admitted later are told with `add`.
    """

    def __init__(self, kv: KVCacheManager, running: list[Request]) -> None:
        self._kv = kv
        self._running = running
        self._next_block_to_request: dict[bytes, Request] | None = None

    def find_prefix(self, request: Request) -> PrefixHit | None:
        """The cached prefix of a waiting request, or None while `request.prefix_leader` computes
        what comes next."""
        leader = request.prefix_leader
        if leader is not None and self._computes_for(leader, request):
            return None
        hit = self._kv.find_prefix(request)
        leader = None
        missing = self._kv.missing_block(request, hit)
        if missing is not None and self._running:
            leader = self._leaders().get(missing)
        request.prefix_leader = leader
        return hit if leader is None else None

    def add(self, request: Request) -> None:
        """A request has been admitted, with its tokens of this step counted as computed."""
        if self._next_block_to_request is not None:
            self._note(self._next_block_to_request, request)

    def _computes_for(self, leader: Request, request: Request) -> bool:
        if leader.status is not RequestStatus.RUNNING:
            return False
        next_block = self._kv.next_block(leader)
        return next_block is not None and self._kv.may_share(request, next_block)

    def _leaders(self) -> dict[bytes, Request]:
        if self._next_block_to_request is None:
            self._next_block_to_request = {}
            for request in self._running:
                self._note(self._next_block_to_request, request)
        return self._next_block_to_request

    def _note(self, leaders: dict[bytes, Request], request: Request) -> None:
        next_block = self._kv.next_block(request)
        if next_block is not None:
            leaders.setdefault(next_block.hash, request)
