from __future__ import annotations

from octavo.core.kv_cache_manager import KVCacheManager
from octavo.core.request import Request
from octavo.core.scheduled_step import StepBuilder
from octavo.messages.kv_cache import KVCacheConfig, KVCacheGroup
from tests.fakes.requests import core_request


def manager() -> KVCacheManager:
    config = KVCacheConfig(20, 4, 1, [KVCacheGroup([0], None)])
    return KVCacheManager(config, max_num_batched_tokens=100, enable_caching=True)


def admitted(kv: KVCacheManager, request_id: str, prompt: list[int]) -> Request:
    message = core_request(request_id, prompt)
    request = Request(message, max_model_len=100, index=0, queued_s=0.0)
    assert kv.admit(request, kv.find_prefix(request), len(prompt), keep_free=0) is not None
    return request


def test_an_empty_step_is_false() -> None:
    assert not StepBuilder(8, manager())


def test_a_withdrawn_request_leaves_its_budget_and_is_not_advanced() -> None:
    kv = manager()
    a, b = admitted(kv, "a", [1] * 6), admitted(kv, "b", [2] * 3)
    step = StepBuilder(10, kv)
    step.add(a, 6)
    step.add(b, 3)
    assert step.token_budget == 1
    step.withdraw(a)
    step.withdraw(a)
    assert step.token_budget == 7
    scheduled = step.build([])
    assert scheduled.output.num_scheduled_tokens == {"b": 3}
    assert (a.num_computed_tokens, b.num_computed_tokens) == (0, 3)


def test_the_message_says_where_requests_were_and_leaves_them_where_they_will_be() -> None:
    kv = manager()
    a = admitted(kv, "a", [1] * 9)
    a.num_computed_tokens = 2
    step = StepBuilder(10, kv)
    step.add(a, 5)
    step.add_blocks(a, [[7]])
    scheduled = step.build(["gone"])
    assert scheduled.output.new_block_ids == {"a": [[7]]}
    assert scheduled.output.finished_request_ids == ["gone"]
    assert scheduled.output.total_num_scheduled_tokens == 5
    assert a.num_computed_tokens == 7
    assert a.num_pending_samples == 0


def test_a_request_samples_when_the_step_reaches_its_end() -> None:
    kv = manager()
    a = admitted(kv, "a", [1] * 3)
    step = StepBuilder(10, kv)
    step.add(a, 3)
    assert a.num_pending_samples == 1


def test_blocks_are_found_by_others_in_the_step_that_fills_them() -> None:
    kv = manager()
    a = admitted(kv, "a", [1] * 9)
    other = Request(core_request("b", [1] * 9), max_model_len=100, index=0, queued_s=0.0)
    step = StepBuilder(10, kv)
    assert kv.find_prefix(other).num_tokens == 0
    step.add(a, 9)
    assert kv.find_prefix(other).num_tokens == 8
    assert list(step.build([]).named) == [a]


def test_what_is_withdrawn_was_never_there() -> None:
    kv = manager()
    a = admitted(kv, "a", [1] * 9)
    step = StepBuilder(10, kv)
    step.add(a, 9)
    step.add_blocks(a, [[7]])
    step.withdraw(a)
    assert (a.num_computed_tokens, a.num_pending_samples, step.token_budget) == (0, 0, 10)
    scheduled = step.build([])
    assert not step
    assert (scheduled.requests, scheduled.named, scheduled.output.new_block_ids) == ([], {}, {})
    other = Request(core_request("b", [1] * 9), max_model_len=100, index=0, queued_s=0.0)
    assert kv.find_prefix(other).num_tokens == 0
