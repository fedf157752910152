from __future__ import annotations

import msgspec
import pytest

from octavo.config.engine import CacheConfig, SchedulerConfig
from octavo.core.engine_core import EngineCore
from octavo.errors import ConfigError, StartupError
from octavo.messages.engine import EngineCoreOutput, FinishReason
from octavo.messages.grammar import Grammar
from octavo.structured_output.request_grammars import RequestGrammars
from octavo.structured_output.vocabulary import byte_vocabulary
from tests.fakes.core_run import engine
from tests.fakes.engine_config import engine_config
from tests.fakes.fake_executor import FakeExecutor, solo_output
from tests.fakes.fake_grammars import FakeBackend
from tests.fakes.requests import core_request


def run(core: EngineCore) -> list[EngineCoreOutput]:
    outputs = []
    while core.has_work:
        said = core.step()
        outputs += said.outputs if said else []
    return outputs


def test_a_request_runs_to_its_length() -> None:
    core = EngineCore(engine_config(), FakeExecutor())
    core.add_request(core_request("a", [1, 2, 3], max_tokens=4))
    outputs = run(core)
    assert [o.new_token_ids for o in outputs] == [[t] for t in solo_output([1, 2, 3], 4)]
    assert [o.finish_reason for o in outputs] == [None, None, None, FinishReason.LENGTH]


def test_it_knows_where_its_time_went() -> None:
    core = EngineCore(engine_config(), FakeExecutor(backend_s=2.0))
    core.add_request(core_request("a", [1, 2, 3], max_tokens=4))
    run(core)
    assert (core.times.num_steps, core.times.backend_s) == (4, 8.0)
    assert 0 < core.times.step_s < 1


def test_without_work_a_step_says_nothing() -> None:
    core = EngineCore(engine_config(), FakeExecutor())
    assert not core.has_work
    assert core.step() is None


def test_the_executor_is_told_that_there_is_no_work() -> None:
    executor = FakeExecutor()
    core = EngineCore(engine_config(), executor)
    core.idle()
    assert executor.calls[-1] == "idle"


def test_start_goes_through_the_executor_in_order_and_is_timed() -> None:
    executor = FakeExecutor()
    core = EngineCore(engine_config(), executor)
    assert executor.calls == ["load", "memory_report", "initialize_kv_cache", "warm_up"]
    names = [phase.name for phase in core.ready.phases]
    assert names == [
        "load weights",
        "plan memory",
        "allocate KV cache",
        "warm up",
        "scheduler",
    ]
    ends = [phase.end_s for phase in core.ready.phases]
    assert [phase.start_s for phase in core.ready.phases][1:] == ends[:-1]  # no gaps


def test_ready_says_what_was_decided() -> None:
    config = engine_config(
        cache=CacheConfig(num_gpu_blocks_override=5), scheduler=SchedulerConfig(max_num_seqs=3)
    )
    ready = EngineCore(config, FakeExecutor(), engine_index=2).ready
    assert (ready.engine_index, ready.num_blocks, ready.block_size) == (2, 5, 16)
    assert ready.kv_cache_size_tokens == ready.max_model_len == 64
    assert ready.max_num_seqs == 3
    assert any("lowered from 1024 to 64" in note for note in ready.notes)


def test_a_failed_start_shuts_the_executor_down() -> None:
    class Failing(FakeExecutor):
        def load(self) -> None:
            super().load()
            raise StartupError("no such weights")

    executor = Failing()
    with pytest.raises(StartupError, match="no such weights"):
        EngineCore(engine_config(), executor)
    assert executor.calls == ["load", "shutdown"]


def test_a_window_that_was_given_and_does_not_fit_fails_the_start() -> None:
    config = engine_config(
        cache=CacheConfig(num_gpu_blocks_override=5), max_model_len_is_given=True
    )
    executor = FakeExecutor()
    with pytest.raises(ConfigError, match="max seq len"):
        EngineCore(config, executor)
    assert executor.calls[-1] == "shutdown"


def test_a_slow_machine_gets_smaller_steps() -> None:
    core = EngineCore(
        engine_config(scheduler=SchedulerConfig(max_num_seqs=8)), FakeExecutor(full_step_s=1.6)
    )
    assert core.ready.max_num_batched_tokens == 96
    core.add_request(core_request("a", list(range(200))))
    said = core.step()
    assert said is not None
    assert said.scheduler_stats is not None
    assert said.scheduler_stats.num_scheduled_tokens == 96


def test_a_step_that_cannot_run_raises_its_cause() -> None:
    class Failing(FakeExecutor):
        def execute_model(self, scheduled, grammar_masks=None):  # type: ignore[no-untyped-def]
            result = super().execute_model(scheduled)
            failed = type(result)()
            failed.set_exception(RuntimeError("device lost"))
            return failed

    core = EngineCore(engine_config(), Failing())
    core.add_request(core_request())
    with pytest.raises(RuntimeError, match="device lost"):
        core.step()


def test_an_abort_is_reported_as_numbers_only() -> None:
    core = EngineCore(engine_config(), FakeExecutor())
    core.add_request(core_request("a"))
    core.step()
    core.abort_requests(["a", "nobody"])
    assert core.has_work
    said = core.step()
    assert said is not None
    assert said.outputs == []
    assert said.scheduler_stats is not None
    assert said.scheduler_stats.num_running_reqs == 0
    assert said.scheduler_stats.kv_cache_usage == 0
    assert not core.has_work
    core.abort_requests(["a"])
    assert not core.has_work


def test_when_the_core_itself_ends_all_requests_each_gets_its_last_output() -> None:
    core = EngineCore(engine_config(), FakeExecutor())
    core.add_request(core_request("a"))
    core.step()
    core.add_request(core_request("b"))
    core.abort_all()
    assert core.num_unfinished_requests == 0
    ends = [(output.request_id, output.finish_reason) for output in run(core)]
    assert ends == [("a", FinishReason.ABORT), ("b", FinishReason.ABORT)]


def test_reset_prefix_cache_waits_for_running_requests() -> None:
    core = EngineCore(engine_config(), FakeExecutor())
    core.add_request(core_request())
    core.step()
    assert not core.reset_prefix_cache()
    run(core)
    assert core.reset_prefix_cache()


@pytest.mark.parametrize("depth", [1, 2])
def test_a_reset_that_preempts_takes_place_at_once_and_changes_no_output(depth: int) -> None:
    core = EngineCore(engine_config(scheduler=SchedulerConfig(depth=depth)), FakeExecutor())
    prompts = {"a": list(range(40)), "b": list(range(50, 70))}
    for request_id, prompt in prompts.items():
        core.add_request(core_request(request_id, prompt, max_tokens=8))
    outputs: list[EngineCoreOutput] = []
    for _ in range(3):
        said = core.step()
        outputs += said.outputs if said else []
    assert not core.reset_prefix_cache()
    assert core.reset_prefix_cache(preempt_running=True)
    outputs += run(core)
    for request_id, prompt in prompts.items():
        mine = [output for output in outputs if output.request_id == request_id]
        assert [t for o in mine for t in o.new_token_ids] == solo_output(prompt, 8)
        assert mine[-1].events is not None
        assert mine[-1].events.num_preemptions == 1


def test_the_workers_are_told_who_has_ended() -> None:
    executor = FakeExecutor()
    core = EngineCore(engine_config(), executor)
    core.add_request(core_request("a", max_tokens=2))
    run(core)
    core.add_request(core_request("b"))
    core.step()
    assert set(executor.rows) == {"b"}


def prefix_counts(core: EngineCore) -> tuple[int, int]:
    """Tokens looked up and found until nothing is left to do."""
    queries = hits = 0
    while core.has_work:
        said = core.step()
        if said is not None and said.scheduler_stats is not None:
            queries += said.scheduler_stats.prefix_cache.queries
            hits += said.scheduler_stats.prefix_cache.hits
    return queries, hits


@pytest.mark.parametrize(("tells_prompts_apart", "hits"), [(False, 16), (True, 8)])
def test_a_reply_is_computed_again_in_the_next_prompt_only_if_prompts_are_told_apart(
    tells_prompts_apart: bool, hits: int
) -> None:
    """What the workers say of their caches reaches the names of blocks."""
    run_ = engine(tells_prompts_apart=tells_prompts_apart)
    prompt = list(range(10))
    run_.add(core_request("first", prompt, max_tokens=8))
    run_.finish()
    turn = [*prompt, *run_.tokens("first"), 7]
    run_.add(core_request("second", turn, max_tokens=8))
    run_.finish()
    assert run_.outputs["second"][0].num_cached_tokens == hits
    for name, tokens in (("first", prompt), ("second", turn)):
        alone = solo_output(tokens, 8, tells_prompts_apart=tells_prompts_apart)
        assert run_.tokens(name) == alone


@pytest.mark.parametrize("depth", [1, 2])
def test_a_preempted_request_computes_again_what_it_has_generated_as_such(depth: int) -> None:
    for num_steps in range(4, 16):
        run_ = engine(tells_prompts_apart=True, depth=depth, max_num_batched_tokens=8)
        run_.add(core_request("a", list(range(10)), max_tokens=20))
        run_.add(core_request("b", list(range(10)), max_tokens=20))  # the same, as for n = 2
        for _ in range(num_steps):
            run_.step()
        run_.core.reset_prefix_cache(preempt_running=True)
        run_.finish()
        alone = solo_output(list(range(10)), 20, tells_prompts_apart=True)
        assert run_.tokens("a") == run_.tokens("b") == alone


def test_each_prompt_is_looked_up_once_however_often_it_is_preempted() -> None:
    config = engine_config(
        cache=CacheConfig(num_gpu_blocks_override=6),
        scheduler=SchedulerConfig(max_num_batched_tokens=128),
    )
    core = EngineCore(config, FakeExecutor())
    for number in range(4):
        core.add_request(core_request(f"r{number}", [number, *range(19)], max_tokens=30))
    outputs: list[EngineCoreOutput] = []
    queries = hits = 0
    while core.has_work:
        said = core.step()
        assert said is not None
        assert said.scheduler_stats is not None
        outputs += said.outputs
        queries += said.scheduler_stats.prefix_cache.queries
        hits += said.scheduler_stats.prefix_cache.hits
    assert any(output.events and output.events.num_preemptions for output in outputs)
    assert (queries, hits) == (80, 0)


def test_prompts_that_are_not_looked_up_are_not_counted() -> None:
    core = EngineCore(engine_config(), FakeExecutor())
    core.add_request(core_request("a", list(range(40)), max_tokens=1))
    assert prefix_counts(core) == (40, 0)
    core.add_request(core_request("b", list(range(40)), max_tokens=1))
    assert prefix_counts(core) == (40, 32)
    core.add_request(core_request("c", list(range(40)), max_tokens=1, prompt_logprobs=0))
    assert prefix_counts(core) == (0, 0)
    core = EngineCore(engine_config(cache=CacheConfig(enable_prefix_caching=False)), FakeExecutor())
    core.add_request(core_request("a", list(range(40)), max_tokens=1))
    assert prefix_counts(core) == (0, 0)


def test_plain_requests_have_a_token_in_every_step_while_grammars_are_compiled() -> None:
    """Counted in steps, so that it holds on any machine: no step waits for a compile, and none is
    without a token for everybody who runs."""
    backend = FakeBackend()
    backend.gate.clear()
    grammars = RequestGrammars(lambda vocabulary: backend)
    core = EngineCore(engine_config(), FakeExecutor(), structured_output=grammars)
    core.set_vocabulary(byte_vocabulary())
    plain = [core_request(f"plain {n}", [n, 2, 3], max_tokens=40) for n in range(8)]
    for request in plain:
        core.add_request(request)
    for number in range(300):
        asking = core_request(f"grammar {number}", [number, 5], max_tokens=1)
        grammar = Grammar("lark", f"grammar {number}")
        core.add_request(msgspec.structs.replace(asking, grammar=grammar))
    for _ in range(40):
        said = core.step()
        assert said is not None
        assert {output.request_id for output in said.outputs} == {r.request_id for r in plain}
    assert core.num_unfinished_requests == 300
    backend.gate.set()
    ended = set()
    while core.has_work:
        said = core.step()
        ended |= {output.request_id for output in (said.outputs if said else ())}
    assert len(ended) == len(backend.compiled) == 300
    core.shutdown()
