"""Requests that wait to run, in the order in which they are served.

A request that was preempted, or passed over because something of it was not ready, keeps its place:
the order says who is served first, not who came to the queue last.

Runs in: EngineCore. Owns: the order of waiting requests. Knows nothing of: blocks, budgets.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from octavo.core.request import Request

#: orders requests, the smallest first; no two requests have the same key
Key = Callable[[Request], tuple[float, ...]]


class RequestQueue:
    """Waiting requests. No operation is linear.

    A heap cannot drop an entry from its middle: removed requests stay in it, marked by their
    absence from `_live`, until they surface or are more than half of it.

    Args:
        key: the order.
    """

    def __init__(self, key: Key) -> None:
        self._key = key
        self._heap: list[tuple[tuple[float, ...], Request]] = []
        self._live: set[Request] = set()

    def add(self, request: Request) -> None:
        """Puts a request in its place."""
        assert request not in self._live, f"{request.request_id} is queued already"
        heapq.heappush(self._heap, (self._key(request), request))
        self._live.add(request)

    def peek(self) -> Request:
        """The request to admit next. The queue must not be empty."""
        return self._heap[0][1]

    def pop(self) -> Request:
        """Removes and returns the request to admit next. The queue must not be empty."""
        request = self.peek()
        self.remove(request)
        return request

    def remove(self, request: Request) -> None:
        """Removes a request from anywhere in the queue."""
        self._live.remove(request)
        heap, live = self._heap, self._live
        while heap and heap[0][1] not in live:
            heapq.heappop(heap)
        if len(heap) > 2 * len(live) + 16:
            self._heap = [entry for entry in heap if entry[1] in live]
            heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Request]:
        """All waiting requests; their order is not promised."""
        return iter(self._live)


def make_request_queue(policy: str) -> RequestQueue:
    """The queue of a scheduling policy: `fcfs` or `priority`."""
    return RequestQueue(_POLICY_TO_KEY[policy])


def _arrival(request: Request) -> tuple[float, ...]:
    return (request.index,)


_POLICY_TO_KEY: dict[str, Key] = {"fcfs": _arrival, "priority": Request.sort_key}
