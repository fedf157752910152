"""Waiting for blocks of a prefix that another request is computing."""

from __future__ import annotations

import pytest

from octavo.messages.kv_cache import KVCacheSpec
from tests.fakes.core_run import Run, engine, scheduled
from tests.fakes.fake_executor import solo_output
from tests.fakes.requests import core_request

PROMPT = list(range(40))  # 10 blocks


def two_of_a_kind(**settings: object) -> Run:
    """ "a" gets 8 of its 40 tokens per step; "b" has the same prompt and one token more."""
    run = engine(long_prefill_token_threshold=8, **settings)  # type: ignore[arg-type]
    run.add(core_request("a", PROMPT), core_request("b", [*PROMPT, 99]))
    return run


def test_a_request_waits_while_another_computes_its_prefix() -> None:
    run = two_of_a_kind()
    assert [scheduled(run.step()) for _ in range(4)] == [{"a": 8}] * 4
    assert scheduled(run.step()) == {"a": 8, "b": 1}
    run.finish()
    assert run.tokens("b") == solo_output([*PROMPT, 99], 5)
    assert run.outputs["b"][0].num_cached_tokens == 40


def test_what_it_looks_up_is_counted_once() -> None:
    run = two_of_a_kind()
    run.finish()
    assert sum(stats.prefix_cache.queries for stats in run.stats) == 40 + 41
    assert sum(stats.prefix_cache.hits for stats in run.stats) == 40
    assert all(stats.num_waiting_reqs == 1 for stats in run.stats[:4])


def test_others_pass_but_do_not_take_its_place() -> None:
    run = two_of_a_kind(max_num_seqs=3)
    run.add(*(core_request(name, [ord(name)] * 6, max_tokens=30) for name in "cd"))
    assert scheduled(run.step()) == {"a": 8, "c": 6}
    for _ in range(3):
        assert list(scheduled(run.step())) == ["a", "c"]
    assert list(scheduled(run.step())) == ["a", "c", "b"]
    run.finish()


def test_blocks_are_kept_for_it() -> None:
    run = two_of_a_kind(num_blocks=19, max_model_len=60)  # 18 blocks: a needs 10, b 1 beyond them
    run.add(core_request("c", [7] * 29, max_tokens=2))  # 8 blocks
    for _ in range(4):
        assert list(scheduled(run.step())) == ["a"]
    assert list(scheduled(run.step())) == ["a", "b"]
    run.finish()
    assert run.tokens("c") == solo_output([7] * 29, 2)


@pytest.mark.parametrize("end", ["abort", "fail", "preempt"])
@pytest.mark.parametrize("depth", [1, 2])
def test_it_goes_on_by_itself_when_the_other_leaves(end: str, depth: int) -> None:
    run = two_of_a_kind(depth=depth)
    run.step()
    if end == "abort":
        run.core.abort_requests(["a"])
    elif end == "fail":
        run.executor.fail_next = {"a": "broken"}
    else:
        run.core.reset_prefix_cache(preempt_running=True)
    run.finish(max_steps=30)
    assert run.tokens("b") == solo_output([*PROMPT, 99], 5)
    if end == "preempt":
        assert run.tokens("a") == solo_output(PROMPT, 5)


def test_a_chain_of_prefixes_is_computed_once() -> None:
    """c waits for b's part, which b computes when a's is done."""
    run = two_of_a_kind()
    run.add(core_request("c", [*PROMPT, 99, *range(50, 66), 3]))
    run.add(core_request("d", [*PROMPT, 99, *range(50, 66), 4]))
    total = 0
    while run.core.has_work:
        step = run.step()
        total += step.total_num_scheduled_tokens if step is not None else 0
    decoded = 4 * 4
    assert total == 40 + 1 + 18 + 2 + decoded
    for name, tail in {"c": 3, "d": 4}.items():
        assert run.tokens(name) == solo_output([*PROMPT, 99, *range(50, 66), tail], 5)


@pytest.mark.parametrize(
    ("change", "is_shared"),
    [({}, True), ({"cache_salt": "other"}, False), ({"prompt_logprobs": 0}, False)],
)
def test_only_who_may_read_the_blocks_waits(change: dict[str, object], is_shared: bool) -> None:
    run = engine(long_prefill_token_threshold=8)
    run.add(core_request("a", PROMPT), core_request("b", [*PROMPT, 99], **change))  # type: ignore[arg-type]
    assert ("b" in scheduled(run.step())) is not is_shared
    run.finish()


@pytest.mark.parametrize(("tells_prompts_apart", "waits"), [(False, True), (True, False)])
def test_a_prompt_waits_for_generated_tokens_only_if_they_are_the_same(
    tells_prompts_apart: bool, waits: bool
) -> None:
    """A preempted request computes its generated tokens again; another has them in its prompt."""
    run = engine(
        tells_prompts_apart=tells_prompts_apart,
        max_num_batched_tokens=8,
        long_prefill_token_threshold=4,
    )
    run.add(core_request("a", [5] * 4, max_tokens=20))
    for _ in range(13):
        run.step()
    reply = run.tokens("a")
    run.core.reset_prefix_cache(preempt_running=True)
    assert scheduled(run.step()) == {"a": 4}
    run.add(core_request("b", [5] * 4 + reply))
    step = scheduled(run.step())
    assert step == ({"a": 4} if waits else {"a": 4, "b": 4})
    run.finish()
    for name, prompt, count in (("a", [5] * 4, 20), ("b", [5] * 4 + reply, 5)):
        alone = solo_output(prompt, count, tells_prompts_apart=tells_prompts_apart)
        assert run.tokens(name) == alone


def test_nobody_waits_for_a_block_it_must_compute_itself() -> None:
    run = engine(long_prefill_token_threshold=8)
    run.add(core_request("a", PROMPT), core_request("b", PROMPT[:12]))  # a is at block 2, of which
    assert scheduled(run.step()) == {"a": 8, "b": 4}  # b has the last token
    run.finish()


def test_without_a_cache_nobody_waits() -> None:
    run = two_of_a_kind(caching=False)
    assert scheduled(run.step()) == {"a": 8, "b": 8}
    run.finish()


def test_with_sliding_windows_it_waits_too() -> None:
    specs = [KVCacheSpec(n, 1, 8, 8, "float32", window) for n, window in enumerate([None, 6])]
    run = two_of_a_kind(specs=specs)
    assert [scheduled(run.step()) for _ in range(4)] == [{"a": 8}] * 4
    assert scheduled(run.step()) == {"a": 8, "b": 1}
    run.finish()
    assert run.tokens("b") == solo_output([*PROMPT, 99], 5)


def test_by_priority_the_best_waits_for_the_running_one() -> None:
    run = engine(long_prefill_token_threshold=8, policy="priority")
    run.add(core_request("low", PROMPT, priority=5), core_request("other", [7], priority=6))
    run.step()
    run.add(core_request("high", [*PROMPT, 99], priority=1))
    run.add(core_request("mid", [200] * 4, priority=3))
    assert scheduled(run.step()) == {"low": 8, "other": 1, "mid": 4}
    run.finish()
    assert run.tokens("high") == solo_output([*PROMPT, 99], 5)
