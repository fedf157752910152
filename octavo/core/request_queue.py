"""Requests that wait to run, first come first served or by priority, behind one interface.

Runs in: EngineCore. Owns: the order of waiting requests. Knows nothing of: blocks, budgets.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator

from octavo.core.request import Request


class RequestQueue(ABC):
    """Waiting requests in the order in which they are admitted. No operation is linear."""

    @abstractmethod
    def add(self, request: Request) -> None:
        """Puts a new request in its place."""

    @abstractmethod
    def put_back(self, request: Request) -> None:
        """Returns a request that has been admitted before: ahead of its equals."""

    @abstractmethod
    def peek(self) -> Request:
        """The request to admit next. The queue must not be empty."""

    @abstractmethod
    def remove(self, request: Request) -> None:
        """Removes a request from anywhere in the queue."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __iter__(self) -> Iterator[Request]:
        """All waiting requests; their order is not promised."""

    def pop(self) -> Request:
        """Removes and returns the request to admit next. The queue must not be empty."""
        request = self.peek()
        self.remove(request)
        return request


class FCFSQueue(RequestQueue):
    """First come, first served; a preempted request goes back to the front."""

    def __init__(self) -> None:
        # an OrderedDict is a linked list with an index: both ends and any middle in O(1)
        self._order: OrderedDict[Request, None] = OrderedDict()

    def add(self, request: Request) -> None:
        assert request not in self._order, f"{request.request_id} is queued already"
        self._order[request] = None

    def put_back(self, request: Request) -> None:
        self.add(request)
        self._order.move_to_end(request, last=False)

    def peek(self) -> Request:
        return next(iter(self._order))

    def remove(self, request: Request) -> None:
        del self._order[request]

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._order)


class PriorityQueue(RequestQueue):
    """Smallest (priority, arrival time) first; a preempted request keeps its key.

    A heap cannot drop an entry from its middle: removed requests stay in it, marked by their
    absence from `_live`, until they surface or are more than half of it.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, float, int, Request]] = []
        self._live: set[Request] = set()

    def add(self, request: Request) -> None:
        assert request not in self._live, f"{request.request_id} is queued already"
        heapq.heappush(self._heap, (*request.sort_key(), request))
        self._live.add(request)

    def put_back(self, request: Request) -> None:
        self.add(request)

    def peek(self) -> Request:
        heap = self._heap
        while heap[0][-1] not in self._live:
            heapq.heappop(heap)
        return heap[0][-1]

    def remove(self, request: Request) -> None:
        self._live.remove(request)
        if self._heap[0][-1] is request:
            heapq.heappop(self._heap)
        elif len(self._heap) > 2 * len(self._live) + 16:
            self._heap = [entry for entry in self._heap if entry[-1] in self._live]
            heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._live)


def make_request_queue(policy: str) -> RequestQueue:
    """The queue of a scheduling policy: `fcfs` or `priority`."""
    return {"fcfs": FCFSQueue, "priority": PriorityQueue}[policy]()
