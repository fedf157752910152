from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from octavo.core.request import Request
from octavo.core.request_queue import FCFSQueue, PriorityQueue, make_request_queue
from tests.fakes.requests import core_request


def request(index: int, *, priority: int = 0, arrival_time_s: float = 0.0) -> Request:
    message = core_request(str(index), priority=priority, arrival_time_s=arrival_time_s)
    return Request(message, max_model_len=100, index=index, queued_s=0.0)


def test_fcfs_ignores_priority() -> None:
    queue = FCFSQueue()
    requests = [request(0, priority=5), request(1, priority=1)]
    for r in requests:
        queue.add(r)
    assert [queue.pop(), queue.pop()] == requests


def test_fcfs_puts_a_preempted_request_first() -> None:
    queue = FCFSQueue()
    a, b = request(0), request(1)
    queue.add(b)
    queue.put_back(a)
    assert queue.peek() is a


def test_priority_orders_by_priority_then_arrival_then_number() -> None:
    queue = PriorityQueue()
    late = request(0, priority=1, arrival_time_s=2.0)
    early = request(1, priority=1, arrival_time_s=1.0)
    urgent = request(2, priority=-1, arrival_time_s=9.0)
    same = request(3, priority=1, arrival_time_s=1.0)
    for r in (late, early, urgent, same):
        queue.add(r)
    assert [queue.pop() for _ in range(4)] == [urgent, early, same, late]


def test_a_policy_names_its_queue() -> None:
    assert isinstance(make_request_queue("fcfs"), FCFSQueue)
    assert isinstance(make_request_queue("priority"), PriorityQueue)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_adding_a_request_twice_is_our_mistake(policy: str) -> None:
    queue = make_request_queue(policy)
    a = request(0)
    queue.add(a)
    with pytest.raises(AssertionError):
        queue.add(a)


class QueueMachine(RuleBasedStateMachine):
    """Both queues against sorted lists."""

    def __init__(self) -> None:
        super().__init__()
        self.fcfs, self.priority = FCFSQueue(), PriorityQueue()
        self.order: list[Request] = []
        self.count = 0

    @rule(priority=st.integers(-2, 2), arrival=st.integers(0, 3), back=st.booleans())
    def add(self, priority: int, arrival: int, back: bool) -> None:
        r = request(self.count, priority=priority, arrival_time_s=arrival)
        self.count += 1
        for queue in (self.fcfs, self.priority):
            queue.put_back(r) if back else queue.add(r)
        self.order.insert(0 if back else len(self.order), r)

    @precondition(lambda self: self.order)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        r = data.draw(st.sampled_from(self.order))
        self.order.remove(r)
        self.fcfs.remove(r)
        self.priority.remove(r)

    @precondition(lambda self: self.order)
    @rule()
    def pop_fcfs(self) -> None:
        r = self.fcfs.pop()
        assert r is self.order.pop(0)
        self.priority.remove(r)

    @precondition(lambda self: self.order)
    @rule()
    def pop_priority(self) -> None:
        r = self.priority.pop()
        assert r is min(self.order, key=Request.sort_key)
        self.order.remove(r)
        self.fcfs.remove(r)

    @invariant()
    def same_members(self) -> None:
        assert len(self.fcfs) == len(self.priority) == len(self.order)
        assert list(self.fcfs) == self.order
        assert set(self.priority) == set(self.order)


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
