"""The compute threads, seen from outside: names, places, sleep, and work that is all done."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from octavo.errors import StartupError
from octavo.ops.ggml_type import GGMLType
from octavo.ops.interface import Activation
from octavo.ops.library import load_library
from octavo.ops.program import Op
from tests.fakes.memory_checkpoint import random_tensor
from tests.fakes.plan_rig import F32, PlanRig, plan_rig

COLS = 4096  # a row is enough work to be a tile of its own


def compute_threads() -> dict[str, Path]:
    """Name -> /proc folder of this process's compute threads."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        name = (task / "comm").read_text().strip()
        if name.startswith("octavo-comp"):
            found[name] = task
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "did not happen"


def parallel_plan(rig: PlanRig) -> Callable[[F32], F32]:
    """A step of many instructions, each spread over the threads."""
    x = rig.buffer(COLS)
    last = x
    for _ in range(20):
        out = rig.buffer(COLS)
        rig.emit(Op.ACT, [last], [out], i=[Activation.SILU])
        last = out
    rig.build()
    return lambda values: rig.run([(x, values)], last)[0]


def values(num_rows: int) -> F32:
    return np.random.default_rng(0).standard_normal((num_rows, COLS)).astype(np.float32) * 5


def test_threads_are_named_and_end_with_the_pool() -> None:
    before = set(compute_threads())
    pool = load_library().create_pool(4)
    assert set(compute_threads()) - before == {f"octavo-comp-{n}" for n in (1, 2, 3)}
    pool.close()
    assert set(compute_threads()) == before


def test_a_pool_of_one_has_no_threads_of_its_own() -> None:
    with plan_rig(num_threads=1) as rig:
        run = parallel_plan(rig)
        assert not compute_threads()
        assert run(values(3)).shape == (3, COLS)


@pytest.mark.parametrize("num_threads", [0, -1, 5000])
def test_senseless_sizes_are_refused(num_threads: int) -> None:
    with pytest.raises(StartupError, match=rf"num_threads .* got {num_threads}"):
        load_library().create_pool(num_threads)


def test_workers_are_pinned_to_the_given_cpus() -> None:
    cpu = sorted(os.sched_getaffinity(0))[-1]
    mine = os.sched_getaffinity(0)
    pool = load_library().create_pool(3, cpus=[0, cpu, cpu])
    try:
        for task in compute_threads().values():
            assert os.sched_getaffinity(int(task.name)) == {cpu}
        assert os.sched_getaffinity(0) == mine  # the caller's thread starts Python's other threads
    finally:
        pool.close()


def test_a_cpu_that_does_not_exist_is_refused_and_nothing_is_left() -> None:
    with pytest.raises(StartupError, match="pin compute thread 1 to CPU 1023"):
        load_library().create_pool(2, cpus=[0, 1023])
    assert not compute_threads()


@pytest.mark.parametrize("spin_us", [0, 50])
def test_idle_threads_sleep(spin_us: int) -> None:
    with plan_rig(num_threads=3, spin_us=spin_us) as rig:
        run = parallel_plan(rig)
        run(values(16))
        threads = compute_threads().values()
        assert len(threads) == 2

        def cpu_ticks() -> list[str]:
            return [field for t in threads for field in (t / "stat").read_text().split()[13:15]]

        def is_asleep() -> bool:
            return all(
                (t / "stat").read_text().rsplit(")", 1)[1].split()[0] == "S" for t in threads
            )

        wait_until(is_asleep)
        ticks = cpu_ticks()
        end = time.monotonic() + 0.1
        while time.monotonic() < end:
            assert is_asleep()
        assert cpu_ticks() == ticks
        run(values(16))  # and they wake up again


@pytest.mark.parametrize("spin_us", [0, 20])
@pytest.mark.parametrize("num_threads", [2, 3, 8])
def test_every_tile_is_done_once_in_hundreds_of_jobs(num_threads: int, spin_us: int) -> None:
    x = values(17)
    with plan_rig(num_threads=1) as rig:
        expected = parallel_plan(rig)(x)
    with plan_rig(num_threads=num_threads, spin_us=spin_us) as rig:
        run = parallel_plan(rig)
        for _ in range(20):
            np.testing.assert_array_equal(run(x), expected)
            np.testing.assert_array_equal(run(x[:2]), expected[:2])


def test_two_callers_take_turns() -> None:
    x = values(9)
    tensor = random_tensor("w", (512, COLS), GGMLType.F32, np.random.default_rng(0))
    with plan_rig(num_threads=2) as rig:
        rig.weights.append(rig.library.pack_weight(rig.pool, tensor, GGMLType.F32))
        run = parallel_plan(rig)
        callers: list[Callable[[], F32]] = [
            lambda: run(x),
            lambda: rig.library.linear(rig.pool, rig.weights, x)[0],
        ]
        expected = [caller() for caller in callers]
        with ThreadPoolExecutor(2) as threads:
            for _ in range(10):
                futures = [threads.submit(caller) for caller in callers]
                for future, result in zip(futures, expected, strict=True):
                    np.testing.assert_array_equal(future.result(), result)


def test_a_forked_child_works_alone_and_can_leave() -> None:
    with plan_rig(num_threads=3) as rig:
        run = parallel_plan(rig)
        x = values(5)
        expected = run(x)
        child = os.fork()
        if child == 0:
            is_right = np.array_equal(run(x), expected)
            rig.close()
            os._exit(0 if is_right else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        np.testing.assert_array_equal(run(x), expected)
