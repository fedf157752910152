"""The life of the EngineCore process, with a fake executor: start, work, failure, end."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from octavo.messages.engine import (
    EngineCoreOutputs,
    FinishReason,
    RequestKind,
    Shutdown,
    StartFailed,
    StepTimes,
    UtilityCall,
    UtilityResult,
)
from tests.fakes.core_process import CoreProcess
from tests.fakes.engine_config import engine_config
from tests.fakes.fake_executor import solo_output
from tests.fakes.requests import core_request

LIMIT_S = 20.0
ROOT = Path(__file__).parents[2]


def exit_status(core: CoreProcess) -> int | None:
    return core.child.wait(LIMIT_S)


def is_alive(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def gone_within(pid: int, limit_s: float) -> bool:
    deadline_s = time.monotonic() + limit_s
    while is_alive(pid):
        if time.monotonic() > deadline_s:
            return False
        select.select([], [], [], 0.01)
    return True


def test_requests_are_answered_and_the_start_is_timed() -> None:
    with CoreProcess() as core:
        ready = core.start()
        assert [phase.process for phase in ready.phases] == ["EngineCore"] * len(ready.phases)
        assert ready.phases[0].name == "interpreter and imports"
        for name in "abc":
            core.add(name, max_tokens=7)
        core.finish("a", "b", "c")
        assert core.tokens("a") == core.tokens("b") == solo_output([1, 2, 3], 7)


def test_a_core_says_where_its_time_went() -> None:
    with CoreProcess() as core:
        core.start()
        core.add("a", max_tokens=7)
        core.finish("a")
        core.send(RequestKind.UTILITY, UtilityCall(1, "step_times"))
        answer = core.next()
        assert isinstance(answer, EngineCoreOutputs)
        assert answer.utility_result is not None
        times = msgspec.convert(answer.utility_result.result, StepTimes)
        assert times.num_steps == 7
        assert times.step_s > 0
        assert times.io_s > 0


def test_a_shutdown_lets_running_requests_finish_and_takes_no_new_ones() -> None:
    with CoreProcess("slow-step") as core:
        core.start()
        core.add("a", max_tokens=10)
        core.receive(lambda: "a" in core.outputs)
        core.send(RequestKind.SHUTDOWN, Shutdown(LIMIT_S))
        core.add("late")
        a, late = core.finish("a", "late")
        assert a.finish_reason is FinishReason.LENGTH
        assert core.tokens("a") == solo_output([1, 2, 3], 10)
        assert late.finish_reason is FinishReason.ABORT
        assert exit_status(core) == 0


def test_a_shutdown_ends_what_still_runs_when_its_time_is_over() -> None:
    with CoreProcess("slow-step") as core:
        core.start()
        core.add("a", max_tokens=10_000)
        core.receive(lambda: "a" in core.outputs)
        core.send(RequestKind.SHUTDOWN, Shutdown(0.1))
        (a,) = core.finish("a")
        assert a.finish_reason is FinishReason.ABORT
        assert exit_status(core) == 0


def test_an_idle_core_ends_at_once_when_asked() -> None:
    with CoreProcess() as core:
        core.start()
        core.send(RequestKind.SHUTDOWN, Shutdown(LIMIT_S))
        assert exit_status(core) == 0


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_signals_for_the_whole_group_do_not_stop_a_core(signal_number: int) -> None:
    with CoreProcess() as core:
        os.kill(core.child.pid, signal_number)  # while it starts
        core.start()
        os.kill(core.child.pid, signal_number)
        core.add("a")
        core.finish("a")
        assert core.tokens("a") == solo_output([1, 2, 3], 5)


def test_a_start_that_fails_says_why_and_ends_with_status_1() -> None:
    with CoreProcess("fail-load") as core:
        core.configure()
        message = core.next()
        assert isinstance(message, StartFailed)
        assert message.message == "The fake model cannot load."
        assert message.exit_code == 1
        assert "Traceback" in message.traceback
        assert exit_status(core) == 1


def test_c13_a_request_that_the_core_finds_wrong_is_told_so_and_the_core_goes_on() -> None:
    with CoreProcess("refuse") as core:
        core.start()
        for name in ("a", "b"):
            core.add(name)
            (refused,) = core.finish(name)
            assert refused.finish_reason is FinishReason.ERROR
            assert refused.is_request_error
            assert refused.error == "top_z=7 is too much for this model."


def test_a_step_that_fails_sends_last_words_and_ends_with_status_1() -> None:
    with CoreProcess("fail-step") as core:
        core.start()
        core.add("a")
        message = core.next()
        assert isinstance(message, EngineCoreOutputs)
        assert message.dead == "RuntimeError: The fake model cannot step."
        assert exit_status(core) == 1


@pytest.mark.parametrize("trouble", ["crash-load", "crash-step"])
def test_a_crash_is_noticed_at_once(trouble: str) -> None:
    with CoreProcess(trouble) as core:
        core.configure()
        if trouble == "crash-step":
            core.next()
            core.add("a")
        assert select.select([core.child], [], [], LIMIT_S)[0]
        assert "SIGKILL" in core.child.describe_end()


@pytest.mark.parametrize("trouble", ["hang-load", "hang-step"])
def test_a_core_that_hangs_can_be_killed(trouble: str) -> None:
    with CoreProcess(trouble) as core:
        core.configure()
        if trouble == "hang-step":
            core.next()
            core.add("a")
        pid = core.child.pid
    assert not is_alive(pid)


def test_messages_nobody_understands_end_nothing() -> None:
    with CoreProcess("slow-step") as core:
        core.start()
        core.add("a", max_tokens=20)
        core.receive(lambda: "a" in core.outputs)
        for frame in (b"", b"\xff", b"\x00", b"\x00\xc1", b"\x01\x01", b"\x03", b"\x00\x91\xa1x"):
            core.channel.send(frame)
        core.send(RequestKind.CONFIG, engine_config())
        core.add("a")  # runs already
        core.add("empty", prompt=[])
        broken = msgspec.to_builtins(core_request("broken"))
        broken[2] = {"top_p": 7.0}
        core.channel.send(bytes([RequestKind.ADD]) + msgspec.msgpack.encode(broken))
        empty, refused, x = core.finish("empty", "broken", "x")
        assert {o.finish_reason for o in (empty, refused, x)} == {FinishReason.ERROR}
        assert refused.error is not None
        assert "top_p" in refused.error
        core.add("b")
        core.finish("b")
        assert core.tokens("b") == solo_output([1, 2, 3], 5)


def test_rare_calls_are_answered_also_those_that_fail_or_do_not_exist() -> None:
    with CoreProcess() as core:
        core.start()
        answers: list[UtilityResult | None] = []
        for number, method in enumerate(["ping", "start_profile", "rm_rf"]):
            core.send(RequestKind.UTILITY, UtilityCall(number, method))
            message = core.next()
            assert isinstance(message, EngineCoreOutputs)
            answers.append(message.utility_result)
        assert answers == [
            UtilityResult(0, "pong"),
            UtilityResult(1, None, "AssertionError: there are no operations to clock"),
            UtilityResult(2, None, "The engine core has no call 'rm_rf'."),
        ]


def test_an_abort_storm_leaves_nothing_behind() -> None:
    with CoreProcess("slow-step") as core:
        core.start()
        names = [f"r{number}" for number in range(1000)]
        for name in names:
            core.add(name, max_tokens=100)
        for name in reversed(names):
            core.send(RequestKind.ABORT, [name, name, "nobody"])
        core.send(RequestKind.ABORT, names)
        core.add("after", prompt=[9], max_tokens=1)
        core.finish("after")
        said = core.messages[-1]
        assert isinstance(said, EngineCoreOutputs)
        assert said.scheduler_stats is not None
        assert said.scheduler_stats.kv_cache_usage == 0
        assert said.scheduler_stats.num_running_reqs == 0


@pytest.mark.parametrize("moment", range(10))
def test_kill_9_of_the_front_end_at_a_random_moment_leaves_no_core(
    moment: int, tmp_path: Path
) -> None:
    delay_s = random.Random(moment).uniform(0.0, 0.5)
    file = tmp_path / "pid"
    command = [sys.executable, "-m", "tests.fakes.core_process", str(file), "none"]
    with subprocess.Popen(command, cwd=ROOT) as front_end:
        deadline_s = time.monotonic() + LIMIT_S
        while not file.exists():
            assert time.monotonic() < deadline_s
            select.select([], [], [], 0.01)
        pid = int(file.read_text())
        select.select([], [], [], delay_s)  # starting, loading or in the middle of a stream
        front_end.kill()
    assert gone_within(pid, 2.0)


@pytest.mark.parametrize("moment", range(5))
def test_kill_9_of_the_core_at_a_random_moment_is_noticed(moment: int) -> None:
    with CoreProcess("slow-step") as core:
        core.start()
        core.add("a", max_tokens=10_000)
        tokens = random.Random(moment).randrange(1, 10)
        core.receive(lambda: len(core.outputs.get("a", ())) >= tokens)
        os.kill(core.child.pid, signal.SIGKILL)
        assert select.select([core.child], [], [], 2.0)[0]
        assert core.child.wait(2.0) == -signal.SIGKILL


def test_a_stopped_core_dies_with_its_front_end(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    command = [sys.executable, "-m", "tests.fakes.core_process", str(file), "none"]
    with subprocess.Popen(command, cwd=ROOT) as front_end:
        deadline_s = time.monotonic() + LIMIT_S
        while not file.exists():
            assert time.monotonic() < deadline_s
            select.select([], [], [], 0.01)
        pid = int(file.read_text())
        comm = Path(f"/proc/{pid}/comm")
        while comm.read_text().strip() != "Octavo::EngineC":  # it has called prctl
            assert time.monotonic() < deadline_s
            select.select([], [], [], 0.01)
        os.kill(pid, signal.SIGSTOP)
        front_end.kill()
    assert gone_within(pid, 2.0)


def run_time_ns(pid: int) -> int:
    """CPU time of all threads of a process so far."""
    return sum(
        int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")
    )


def test_an_idle_core_takes_less_than_a_five_hundredth_of_a_processor() -> None:
    with CoreProcess() as core:
        core.start()
        core.add("a")
        core.finish("a")
        core.send(RequestKind.UTILITY, UtilityCall(0, "ping"))
        core.next()
        select.select([], [], [], 0.1)  # it goes to sleep
        before = run_time_ns(core.child.pid)
        select.select([], [], [], 1.0)
        assert run_time_ns(core.child.pid) - before < 2_000_000
