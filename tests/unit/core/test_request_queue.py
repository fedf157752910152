from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from octavo.core.request import Request
from octavo.core.request_queue import make_request_queue
from tests.fakes.requests import core_request


def request(index: int, *, priority: int = 0, arrival_time_s: float = 0.0) -> Request:
    message = core_request(str(index), priority=priority, arrival_time_s=arrival_time_s)
    return Request(message, max_model_len=100, index=index, queued_s=0.0)


def test_fcfs_ignores_priority() -> None:
    queue = make_request_queue("fcfs")
    requests = [request(0, priority=5), request(1, priority=1)]
    for r in requests:
        queue.add(r)
    assert [queue.pop(), queue.pop()] == requests


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_who_comes_back_keeps_its_place(policy: str) -> None:
    queue = make_request_queue(policy)
    a, b = request(0), request(1)
    queue.add(b)
    queue.add(a)
    assert queue.peek() is a


def test_priority_orders_by_priority_then_arrival_then_number() -> None:
    queue = make_request_queue("priority")
    late = request(0, priority=1, arrival_time_s=2.0)
    early = request(1, priority=1, arrival_time_s=1.0)
    urgent = request(2, priority=-1, arrival_time_s=9.0)
    same = request(3, priority=1, arrival_time_s=1.0)
    for r in (late, early, urgent, same):
        queue.add(r)
    assert [queue.pop() for _ in range(4)] == [urgent, early, same, late]


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_adding_a_request_twice_is_our_mistake(policy: str) -> None:
    queue = make_request_queue(policy)
    a = request(0)
    queue.add(a)
    with pytest.raises(AssertionError):
        queue.add(a)


class QueueMachine(RuleBasedStateMachine):
    """Both orders against the smallest of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.fcfs, self.priority = make_request_queue("fcfs"), make_request_queue("priority")
        self.members: list[Request] = []
        self.gone: list[Request] = []
        self.count = 0

    @rule(priority=st.integers(-2, 2), arrival=st.integers(0, 3))
    def add(self, priority: int, arrival: int) -> None:
        self._put(request(self.count, priority=priority, arrival_time_s=arrival))
        self.count += 1

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        r = data.draw(st.sampled_from(self.gone))
        self.gone.remove(r)
        self._put(r)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        r = data.draw(st.sampled_from(self.members))
        self.fcfs.remove(r)
        self._took(r, self.priority)

    @precondition(lambda self: self.members)
    @rule()
    def pop_fcfs(self) -> None:
        r = self.fcfs.pop()
        assert r is min(self.members, key=lambda member: member.index)
        self._took(r, self.priority)

    @precondition(lambda self: self.members)
    @rule()
    def pop_priority(self) -> None:
        r = self.priority.pop()
        assert r is min(self.members, key=Request.sort_key)
        self._took(r, self.fcfs)

    @invariant()
    def same_members(self) -> None:
        assert len(self.fcfs) == len(self.priority) == len(self.members)
        assert set(self.fcfs) == set(self.priority) == set(self.members)

    def _put(self, r: Request) -> None:
        self.members.append(r)
        self.fcfs.add(r)
        self.priority.add(r)

    def _took(self, r: Request, other) -> None:  # type: ignore[no-untyped-def]
        other.remove(r)
        self.members.remove(r)
        self.gone.append(r)


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
