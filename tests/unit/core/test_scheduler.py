"""The scheduler through the engine core, with an executor that checks every slot it reads."""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from octavo.core.kv_cache_manager import HeldBlocks
from octavo.core.request import Request
from octavo.messages.engine import (
    EngineCoreRequest,
    FinishReason,
)
from octavo.messages.kv_cache import KVCacheSpec
from tests.fakes.core_run import engine, scheduled
from tests.fakes.fake_executor import solo_output
from tests.fakes.requests import core_request


def test_a_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    run = engine(max_num_batched_tokens=8)
    run.add(core_request("a", list(range(20)), max_tokens=2))
    assert [scheduled(run.step())["a"] for _ in range(4)] == [8, 8, 4, 1]
    run.finish()
    assert run.tokens("a") == solo_output(list(range(20)), 2)


def test_decoding_requests_come_before_a_waiting_prompt_in_one_mixed_step() -> None:
    run = engine(max_num_batched_tokens=8)
    run.add(core_request("a", [1, 2], max_tokens=9))
    run.step()
    run.add(core_request("b", list(range(20))))
    assert scheduled(run.step()) == {"a": 1, "b": 7}


def test_without_chunked_prefill_a_prompt_waits_for_a_step_of_its_own() -> None:
    run = engine(max_num_batched_tokens=20, enable_chunked_prefill=False)
    run.add(core_request("a", [1] * 15), core_request("b", [2] * 15))
    assert scheduled(run.step()) == {"a": 15}
    assert scheduled(run.step()) == {"a": 1, "b": 15}


def test_max_num_seqs_limits_running_requests() -> None:
    run = engine(max_num_seqs=2)
    run.add(*(core_request(name, [1, 2]) for name in "abc"))
    assert list(scheduled(run.step())) == ["a", "b"]
    assert run.stats[-1].num_running_reqs == 2
    assert run.stats[-1].num_waiting_reqs == 1


def test_the_long_prefill_cap_counts_only_among_several_requests() -> None:
    alone = engine(max_num_batched_tokens=16, long_prefill_token_threshold=4)
    alone.add(core_request("a", list(range(30))))
    assert scheduled(alone.step()) == {"a": 16}
    alone.add(core_request("b", list(range(50, 80))))
    assert scheduled(alone.step()) == {"a": 4, "b": 4}


def test_the_second_of_two_equal_prompts_computes_only_its_end() -> None:
    run = engine()
    prompt = list(range(18))
    run.add(core_request("a", prompt), core_request("b", prompt))
    assert scheduled(run.step()) == {"a": 18, "b": 2}
    run.finish()
    assert run.tokens("a") == run.tokens("b") == solo_output(prompt, 5)
    assert run.outputs["b"][0].num_cached_tokens == 16
    assert run.outputs["a"][0].num_cached_tokens == 0
    assert run.stats[0].prefix_cache.queries == 36
    assert run.stats[0].prefix_cache.hits == 16
    assert run.stats[1].prefix_cache.queries == 0


def test_without_blocks_the_last_request_in_is_preempted_and_resumes() -> None:
    run = engine(num_blocks=9, max_model_len=32)  # 8 blocks of 4
    prompts = {name: [ord(name)] * 8 for name in "abc"}
    run.add(*(core_request(name, prompt, max_tokens=12) for name, prompt in prompts.items()))
    run.finish()
    assert sum(stats.num_preemptions for stats in run.stats) > 0
    for name, prompt in prompts.items():
        assert run.tokens(name) == solo_output(prompt, 12)
    preempted = {name: run.end(name).events.num_preemptions for name in "abc"}  # type: ignore[union-attr]
    assert preempted["a"] == 0


@pytest.mark.parametrize("budget", [100, 6])
def test_a_resumed_request_computes_its_prompt_and_what_it_generated_in_different_steps(
    budget: int,
) -> None:
    run = engine(max_num_batched_tokens=budget, caching=False)
    prompt = list(range(10))
    run.add(core_request("a", prompt, max_tokens=12))
    while len(run.outputs.get("a", ())) < 8:
        run.step()
    run.core.reset_prefix_cache(preempt_running=True)
    counts = [scheduled(run.step())["a"] for _ in range(2 if budget == 100 else 4)]
    assert counts == ([10, 8] if budget == 100 else [6, 4, 6, 2])
    run.finish()
    assert run.tokens("a") == solo_output(prompt, 12)


def test_a_prompt_found_in_the_cache_is_resumed_with_generated_tokens() -> None:
    run = engine(block_size=4)
    run.add(core_request("a", [7] * 8, max_tokens=12))
    for _ in range(7):
        run.step()
    run.core._scheduler._preempt(run.core._scheduler._running[0])  # its blocks keep their names
    new = run.step()
    assert new is not None
    assert new.new_requests[0].num_computed_tokens == 12
    assert new.num_scheduled_tokens == {"a": 3}  # of 15


def test_the_priority_policy_admits_the_best_and_preempts_the_worst() -> None:
    run = engine(num_blocks=9, max_model_len=32, max_num_seqs=2, policy="priority")
    prompts = {"low": [1] * 8, "mid": [2] * 8, "high": [3] * 8}
    priorities = {"low": 9, "mid": 5, "high": 1}
    run.add(
        *(
            core_request(name, prompt, max_tokens=16, priority=priorities[name])
            for name, prompt in prompts.items()
        )
    )
    assert list(scheduled(run.step())) == ["high", "mid"]
    run.finish()
    for name, prompt in prompts.items():
        assert run.tokens(name) == solo_output(prompt, 16)
    assert run.end("high").events.num_preemptions == 0  # type: ignore[union-attr]
    order = list(run.outputs)
    assert order.index("high") < order.index("low")


def test_a_victim_that_was_already_scheduled_in_the_step_leaves_it() -> None:
    run = engine(num_blocks=5, block_size=4, max_model_len=16, policy="priority", caching=False)
    run.add(core_request("low", [1] * 6, max_tokens=8, priority=9))
    run.step()
    run.add(core_request("high", [2] * 7, max_tokens=8, priority=1))
    run.finish()
    assert run.tokens("low") == solo_output([1] * 6, 8)
    assert run.tokens("high") == solo_output([2] * 7, 8)
    assert sum(stats.num_preemptions for stats in run.stats) > 0


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("reserve", [True, False])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_prompt_longer_than_a_step_does_not_bounce_in_a_tight_cache(
    policy: str, reserve: bool, depth: int
) -> None:
    """Case C97: preemptions are bounded, and every few steps somebody gets a token."""
    run = engine(
        num_blocks=9,
        max_model_len=32,
        max_num_batched_tokens=6,
        max_num_seqs=4,
        policy=policy,
        scheduler_reserve_full_isl=reserve,
        depth=depth,
    )
    prompts = {name: [ord(name)] * 20 for name in "abcd"}
    run.add(*(core_request(name, prompt, max_tokens=12) for name, prompt in prompts.items()))
    steps_without_a_token = 0
    while run.core.has_work:
        before = sum(map(len, run.outputs.values()))
        run.step()
        is_idle = sum(map(len, run.outputs.values())) == before
        steps_without_a_token = steps_without_a_token + 1 if is_idle else 0
        assert steps_without_a_token <= 6
    for name, prompt in prompts.items():
        assert run.tokens(name) == solo_output(prompt, 12)
    # each takes a block of another one: a request makes at most 3 beyond its prompt
    assert sum(stats.num_preemptions for stats in run.stats) <= 4 * 3


def test_a_victim_of_its_own_need_does_not_end_the_step_for_others() -> None:
    """By priority a victim need not be the last in line."""
    run = engine(num_blocks=5, max_model_len=16, policy="priority", caching=False)
    run.add(core_request("low", [1] * 7, max_tokens=8, priority=9))
    run.step()
    run.add(core_request("high", [2] * 5, max_tokens=8, priority=1))
    assert scheduled(run.step()) == {"low": 1, "high": 5}
    assert scheduled(run.step()) == {"high": 1}  # "low" needs a third block
    run.finish()
    assert run.tokens("low") == solo_output([1] * 7, 8)


def test_what_an_aborted_request_failed_to_write_is_not_read() -> None:
    """It leaves while its step is on its way, and the step fails."""
    run = engine(depth=2, max_num_batched_tokens=8)
    prompt = list(range(40))
    run.add(core_request("a", prompt))
    run.step()  # two steps are computed
    run.executor.fail_next = {"a": "broken"}
    run.step()  # the third fails, which nobody has seen yet
    run.core.abort_requests(["a"])
    run.add(core_request("b", prompt))
    run.finish()
    assert run.tokens("b") == solo_output(prompt, 5)
    assert run.outputs["b"][0].num_cached_tokens == 24  # at first; 8 of them are computed again


@pytest.mark.parametrize("depth", [1, 2])
def test_prompt_logprobs_of_a_preempted_request_come_once_and_complete(depth: int) -> None:
    """Preempted in the middle of its prompt, after it, and after its first token."""
    for num_steps in range(1, 6):
        run = engine(max_num_batched_tokens=8, depth=depth)
        run.executor.reports_prompt_logprobs = True
        prompt = list(range(20))
        run.add(core_request("a", prompt, prompt_logprobs=0, max_tokens=6))
        for _ in range(num_steps):
            run.step()
        run.core.reset_prefix_cache(preempt_running=True)
        run.finish()
        assert run.tokens("a") == solo_output(prompt, 6)
        got = [output.prompt_logprobs for output in run.outputs["a"] if output.prompt_logprobs]
        assert len(got) == 1
        assert [e and e.token_ids for e in got[0]] == [None, *([n] for n in prompt[1:])]


def test_a_request_is_admitted_only_if_its_whole_prompt_will_fit() -> None:
    run = engine(num_blocks=9, max_model_len=32, max_num_batched_tokens=8)
    run.add(core_request("a", [1] * 20, max_tokens=4), core_request("b", [2] * 20, max_tokens=4))
    for _ in range(3):
        assert "b" not in scheduled(run.step())
    run.finish()
    assert sum(stats.num_preemptions for stats in run.stats) == 0


def test_a_watermark_keeps_blocks_free_for_running_requests() -> None:
    run = engine(num_blocks=11, max_model_len=40, watermark=0.5)
    run.add(core_request("a", [1] * 12), core_request("b", [2] * 12))
    assert list(scheduled(run.step())) == ["a"]
    run.finish()
    assert run.tokens("b") == solo_output([2] * 12, 5)


def test_a_prompt_larger_than_the_whole_cache_ends_at_once_with_a_sentence() -> None:
    run = engine(num_blocks=5)
    run.add(core_request("a", [1] * 17), core_request("b", [2] * 8))
    run.finish()
    last = run.end("a")
    assert last.finish_reason is FinishReason.ERROR
    assert last.error is not None
    assert "17 tokens" in last.error
    assert "holds 16" in last.error
    assert run.tokens("b") == solo_output([2] * 8, 5)


def test_a_request_that_fills_the_whole_cache_ends_by_length() -> None:
    run = engine(num_blocks=5)
    run.add(core_request("a", [1] * 8, max_tokens=100))
    run.finish()
    assert run.end("a").finish_reason is FinishReason.LENGTH
    assert run.tokens("a") == solo_output([1] * 8, 8)


def test_aborts_at_any_time_and_of_unknown_ids_do_no_harm() -> None:
    run = engine(max_num_seqs=1)
    run.add(core_request("a"), core_request("b"))
    run.step()
    run.core.abort_requests(["a", "b", "nobody"])
    run.core.abort_requests(["a"])
    run.finish()
    assert len(run.outputs["a"]) == 1
    assert "b" not in run.outputs
    assert run.stats[-1].kv_cache_usage == 0
    run.add(core_request("a"))  # an id may be used again
    run.finish()
    assert run.outputs["a"][1].events is not None
    assert [t for o in run.outputs["a"][1:] for t in o.new_token_ids] == solo_output([1, 2, 3], 5)


def test_an_id_that_is_running_is_refused() -> None:
    run = engine()
    run.add(core_request("a"))
    with pytest.raises(AssertionError, match="running already"):
        run.add(core_request("a"))
    run.finish()
    assert run.tokens("a") == solo_output([1, 2, 3], 5)


def test_max_tokens_zero_computes_the_prompt_and_generates_nothing() -> None:
    run = engine()
    run.add(core_request("a", list(range(10)), max_tokens=0))
    run.finish()
    assert run.tokens("a") == []
    assert run.end("a").finish_reason is FinishReason.LENGTH


def test_a_failure_inside_one_request_ends_that_request_only() -> None:
    run = engine()
    run.add(core_request("a", [1] * 9), core_request("b", [2] * 9))
    run.executor.fail_next = {"a": "the model produced no numbers"}
    run.finish()
    assert run.end("a").finish_reason is FinishReason.ERROR
    assert run.end("a").error == "the model produced no numbers"
    assert run.tokens("b") == solo_output([2] * 9, 5)


def test_a_request_that_asked_for_the_impossible_is_told_so() -> None:
    run = engine()
    run.add(core_request("a"), core_request("b"))
    run.executor.fail_next = {"a": "nothing is allowed", "b": "no numbers"}
    run.executor.unservable = {"a"}
    run.finish()
    assert run.end("a").is_request_error
    assert run.end("a").error == "nothing is allowed"
    assert not run.end("b").is_request_error


@pytest.mark.parametrize("depth", [1, 2])
def test_who_shares_blocks_of_a_failed_request_computes_them_himself(depth: int) -> None:
    run = engine(depth=depth)
    prompt = list(range(16))
    run.add(
        core_request("a", [*prompt, 100]),
        core_request("b", [*prompt, 200, 201, 202, 203, 204]),
        core_request("c", [*prompt, 200, 201, 202, 203, 205]),  # shares with a through b
    )
    run.executor.fail_next = {"a": "bad"}
    run.finish()
    assert run.end("a").finish_reason is FinishReason.ERROR
    assert run.tokens("b") == solo_output([*prompt, 200, 201, 202, 203, 204], 5)
    assert run.tokens("c") == solo_output([*prompt, 200, 201, 202, 203, 205], 5)
    run.add(core_request("d", [*prompt, 300]))
    run.finish()
    assert run.tokens("d") == solo_output([*prompt, 300], 5)


def test_the_first_and_the_last_output_carry_events() -> None:
    run = engine()
    run.add(core_request("a", max_tokens=3))
    run.finish()
    first, middle, last = run.outputs["a"]
    assert middle.events is None
    assert first.events is not None
    assert last.events is not None
    assert 0 < first.events.queued_s <= first.events.scheduled_s


def test_usage_returns_to_zero() -> None:
    run = engine()
    run.add(core_request("a"))
    run.step()
    assert run.stats[-1].kv_cache_usage > 0
    run.finish()
    assert run.stats[-1].kv_cache_usage == 0


def test_nothing_of_an_ended_request_is_kept() -> None:
    run = engine(num_blocks=8, max_model_len=24)
    for number in range(300):
        run.add(core_request(str(number), [number, 1, 2, 3, 4, 5], max_tokens=1 + number % 3))
        if number % 7 == 0:
            run.core.abort_requests([str(number)])
    run.finish()
    gc.collect()
    kept = [r for r in gc.get_objects() if isinstance(r, (Request, HeldBlocks))]
    assert kept == []


def test_a_step_of_depth_two_is_scheduled_before_the_token_is_known() -> None:
    run = engine(depth=2)
    run.add(core_request("a", max_tokens=4))
    run.core.step()
    assert len(run.executor.steps) == 2
    run.finish()
    assert run.tokens("a")[-3:] == solo_output([1, 2, 3], 4)[-3:]
    assert len(run.executor.steps) == 4  # none beyond max_tokens


class SchedulerMachine(RuleBasedStateMachine):
    """Random requests, aborts and failures on a random engine. Each request must end once, with
    exactly the tokens it would have had alone (or their beginning, if it was aborted or failed)."""

    @initialize(
        policy=st.sampled_from(["fcfs", "priority"]),
        blocks=st.integers(6, 20),
        block_size=st.sampled_from([1, 2, 4]),
        budget=st.integers(4, 24),
        max_num_seqs=st.integers(1, 4),
        threshold=st.sampled_from([0, 0, 3]),
        watermark=st.sampled_from([0.0, 0.0, 0.2]),
        reserve=st.booleans(),
        caching=st.booleans(),
        windows=st.sampled_from([[None], [None], [None, 3], [None, 3, 6], [4]]),
        depth=st.sampled_from([1, 1, 2]),
    )
    def start(
        self,
        policy: str,
        blocks: int,
        block_size: int,
        budget: int,
        max_num_seqs: int,
        threshold: int,
        watermark: float,
        reserve: bool,
        caching: bool,
        windows: list[int | None],
        depth: int,
    ) -> None:
        self.budget, self.max_num_seqs = budget, max_num_seqs
        specs = [KVCacheSpec(n, 1, 8, 8, "float32", window) for n, window in enumerate(windows)]
        self.run = engine(
            num_blocks=blocks * len(windows),
            block_size=block_size,
            max_model_len=40,
            caching=caching,
            depth=depth,
            specs=specs,
            policy=policy,
            max_num_batched_tokens=budget,
            max_num_seqs=max_num_seqs,
            long_prefill_token_threshold=threshold,
            watermark=watermark,
            scheduler_reserve_full_isl=reserve,
        )
        self.requests: dict[str, EngineCoreRequest] = {}
        self.aborted: set[str] = set()
        self.failed: set[str] = set()

    @rule(
        prefix=st.integers(0, 2),
        length=st.integers(1, 30),
        tail=st.integers(0, 3),
        max_tokens=st.integers(0, 12),
        priority=st.integers(-1, 1),
        salt=st.sampled_from([None, None, "s"]),
        eos=st.sampled_from([[], list(range(0, 1000, 9))]),
        min_tokens=st.integers(0, 2),
    )
    def add(
        self,
        prefix: int,
        length: int,
        tail: int,
        max_tokens: int,
        priority: int,
        salt: str | None,
        eos: list[int],
        min_tokens: int,
    ) -> None:
        request_id = f"r{len(self.requests)}"
        prompt = [(prefix * 7 + n) % 11 for n in range(length)] + [50 + tail] * tail
        self.requests[request_id] = core_request(
            request_id,
            prompt,
            priority=priority,
            arrival_time_s=len(self.requests),
            cache_salt=salt,
            eos_token_ids=eos,
            max_tokens=max_tokens,
            min_tokens=min(min_tokens, max_tokens),
        )
        self.run.add(self.requests[request_id])

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from([*self.requests, "nobody"]))
        if not self.has_ended(request_id):
            self.aborted.add(request_id)
        self.run.core.abort_requests([request_id])

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(list(self.requests)))
        self.run.executor.fail_next = {request_id: "failed by the test"}
        self.failed.add(request_id)
        self.step()

    @rule(count=st.integers(1, 4))
    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    @rule()
    def reset(self) -> None:
        self.run.core.reset_prefix_cache()

    def step(self) -> None:
        step = self.run.step()
        if step is not None:
            assert 0 < step.total_num_scheduled_tokens <= self.budget
            assert len(step.num_scheduled_tokens) <= self.max_num_seqs

    def has_ended(self, request_id: str) -> bool:
        return any(o.finish_reason is not None for o in self.run.outputs.get(request_id, ()))

    @invariant()
    def nobody_ends_twice_or_speaks_after_the_end(self) -> None:
        for outputs in self.run.outputs.values() if hasattr(self, "run") else ():
            assert all(output.finish_reason is None for output in outputs[:-1])

    def teardown(self) -> None:
        if not hasattr(self, "run"):
            return
        self.run.finish(max_steps=60 * (len(self.requests) + 1))
        assert set(self.requests) - self.aborted <= set(self.run.outputs) <= set(self.requests)
        for request_id, request in self.requests.items():
            self.check(request_id, request)
        core = self.run.core
        core.add_request(core_request("last", [1], max_tokens=1))
        self.run.finish()
        assert self.run.stats[-1].kv_cache_usage == 0
        assert core.reset_prefix_cache()

    def check(self, request_id: str, request: EngineCoreRequest) -> None:
        expected, stop = self.solo(request)
        if request_id in self.aborted:
            outputs = self.run.outputs.get(request_id, [])
            tokens = [t for output in outputs for t in output.new_token_ids]
            assert tokens == expected[: len(tokens)]
            # it may have ended before it was aborted, without having been told
            assert all(o.error and "whole KV cache" in o.error for o in outputs if o.finish_reason)
            return
        last, tokens = self.run.end(request_id), self.run.tokens(request_id)
        if last.finish_reason is FinishReason.ERROR:
            assert request_id in self.failed or "whole KV cache" in (last.error or "")
            assert tokens == expected[: len(tokens)]
        else:
            assert (tokens, last.finish_reason) == (expected, stop)

    def solo(self, request: EngineCoreRequest) -> tuple[list[int], FinishReason]:
        params, prompt = request.sampling_params, request.prompt_token_ids
        assert params.max_tokens is not None
        if params.max_tokens == 0:
            return [], FinishReason.LENGTH
        limit = min(params.max_tokens, self.run.core.ready.max_model_len - len(prompt))
        output = solo_output(prompt, max(limit, 1))
        for index, token_id in enumerate(output):
            if index + 1 >= params.min_tokens and token_id in request.eos_token_ids:
                return output[: index + 1], FinishReason.STOP
        return output, FinishReason.LENGTH


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None, report_multiple_bugs=False
)
