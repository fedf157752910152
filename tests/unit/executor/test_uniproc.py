"""The executor whose worker is in the same process."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from octavo.errors import EngineDead, EngineError
from octavo.executor.uniproc import UniprocExecutor
from octavo.messages.step import ModelRunnerOutput, NewRequestData, SchedulerOutput
from octavo.worker.model_runner import PreparedStep, StepAborted
from tests.fakes.tiny_llama import TINY_LLAMA, tiny_llama_tensors
from tests.fakes.worker_rig import GREEDY, WorkerRig


@pytest.fixture
def rig() -> Iterator[WorkerRig]:
    rig = WorkerRig(TINY_LLAMA, tiny_llama_tensors(TINY_LLAMA))
    yield rig
    rig.close()


def step() -> SchedulerOutput:
    new = NewRequestData("a", [1, 2, 3], 3, GREEDY, [[1]], 0)
    return SchedulerOutput([new], {}, {"a": 3}, 3, [])


def renamed_step(name: str) -> SchedulerOutput:
    new = NewRequestData(name, [1, 2, 3], 3, GREEDY, [[2]], 0)
    return SchedulerOutput([new], {}, {name: 3}, 3, ["a"])


def test_a_step_is_done_when_its_result_can_be_asked_for(rig: WorkerRig) -> None:
    runs, run = [], rig.worker.run
    rig.worker.run = lambda *args: runs.append(run(*args)) or runs[-1]  # type: ignore[method-assign]
    pending = UniprocExecutor(rig.worker).execute_model(step())
    assert len(runs) == 1
    assert pending.result() is runs[0]
    assert len(runs[0].sampled_token_ids["a"]) == 1


def test_a_step_that_fails_says_so_when_its_result_is_asked_for(rig: WorkerRig) -> None:
    executor = UniprocExecutor(rig.worker)
    executor.abort()
    pending = executor.execute_model(step())
    with pytest.raises(StepAborted):
        pending.result()


def test_at_depth_two_a_step_is_prepared_while_another_computes() -> None:
    rig = WorkerRig(TINY_LLAMA, tiny_llama_tensors(TINY_LLAMA), depth=2)
    alone = UniprocExecutor(rig.worker).execute_model(step()).result().sampled_token_ids["a"]
    executor, gate = UniprocExecutor(rig.worker, depth=2), threading.Event()
    run, ran_on = rig.worker.run, []

    def held(prepared: PreparedStep, grammar_masks: object) -> ModelRunnerOutput:
        ran_on.append(threading.get_ident())
        assert gate.wait(30)
        assert grammar_masks is None
        return run(prepared)

    rig.worker.run = held  # type: ignore[method-assign]
    first = executor.execute_model(renamed_step("b"))
    second = executor.execute_model(SchedulerOutput([], {}, {"b": 1}, 1, []))
    assert not first.done()
    assert not second.done()
    gate.set()
    assert first.result(30).sampled_token_ids["b"] == alone
    assert len(second.result(30).sampled_token_ids["b"]) == 1
    assert len(set(ran_on)) == 1
    assert threading.get_ident() not in ran_on
    executor.shutdown()


def test_it_reports_what_the_worker_reports(rig: WorkerRig) -> None:
    executor = UniprocExecutor(rig.worker)
    assert executor.memory_report() == rig.worker.memory_report()
    assert executor.kv_cache_specs() == rig.worker.kv_cache_specs()
    assert executor.notes() == rig.worker.notes() != []
    assert executor.warm_up() > 0


def test_it_is_healthy_until_it_is_shut_down(rig: WorkerRig) -> None:
    executor = UniprocExecutor(rig.worker)
    executor.check_health()
    executor.shutdown()
    executor.shutdown()
    with pytest.raises(EngineDead):
        executor.check_health()


@pytest.mark.parametrize("depth", [1, 2])
def test_a_profile_is_begun_and_ended_between_steps(depth: int) -> None:
    rig = WorkerRig(TINY_LLAMA, tiny_llama_tensors(TINY_LLAMA), depth=depth)
    executor = UniprocExecutor(rig.worker, depth=depth)
    with pytest.raises(EngineError, match="no profile is being taken"):
        executor.stop_profile()
    executor.start_profile()
    pending = executor.execute_model(step())
    profile = executor.stop_profile()
    assert profile.num_steps == 1
    assert pending.result().sampled_token_ids["a"]
    executor.shutdown()
