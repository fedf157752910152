"""How many compute threads, and where."""

from __future__ import annotations

import pytest

from octavo.config.facts import DeviceFacts
from octavo.config.rules.threads import Threads, choose_threads, parse_cpu_list
from octavo.errors import ConfigError


def machine(
    cores: int = 8, affinity: list[int] | None = None, quota: float | None = None
) -> DeviceFacts:
    return DeviceFacts(
        isa="avx2",
        cpu_name="test",
        num_physical_cores=cores,
        num_logical_cpus=cores * 2,
        cpu_affinity=list(range(cores * 2)) if affinity is None else affinity,
        cpu_quota=quota,
        memory_limit_bytes=2**34,
        memory_available_bytes=2**33,
    )


def choose(
    device: DeviceFacts,
    cpu_threads: int | None = None,
    bind: str = "auto",
    reserved: int | None = None,
) -> tuple[Threads, str]:
    return choose_threads(cpu_threads, bind=bind, num_reserved=reserved, device=device)


def test_the_default_is_one_thread_per_physical_core() -> None:
    threads, reason = choose(machine(8))
    assert threads == Threads(8, [])
    assert reason == "8 compute threads: 8 physical cores, 16 CPUs allowed"


def test_c121_a_quota_is_rounded_down() -> None:
    threads, reason = choose(machine(64, quota=1.5))
    assert threads.num_threads == 1
    assert reason == ("1 compute thread: 64 physical cores, 128 CPUs allowed, a quota of 1.5 CPUs")
    assert choose(machine(8, quota=0.3))[0].num_threads == 1


def test_c121_affinity_limits() -> None:
    assert choose(machine(8, affinity=[3]))[0].num_threads == 1


def test_c121_a_limit_to_one_thread_is_the_same_as_asking_for_one() -> None:
    """So it cannot be slower."""
    asked, _ = choose(machine(64), cpu_threads=1)
    for device in (machine(64, quota=1.5), machine(64, affinity=[3])):
        assert choose(device)[0] == asked


def test_reserved_cores_are_left_free_but_one_thread_remains() -> None:
    assert choose(machine(4), reserved=1)[0].num_threads == 3
    assert choose(machine(4), reserved=0)[0].num_threads == 4
    assert choose(machine(4), reserved=9)[0].num_threads == 1


@pytest.mark.parametrize("bind", ["auto", "nobind", "all", ""])
def test_the_flag_comes_first(bind: str) -> None:
    threads, reason = choose(machine(4), cpu_threads=6, bind=bind)
    assert threads == Threads(6, [])
    assert reason == "6 compute threads (--cpu-threads)"


def test_more_threads_than_cpus_are_mentioned() -> None:
    assert "more than the 2 CPUs" in choose(machine(1), cpu_threads=3)[1]


def test_a_list_pins_its_cpus() -> None:
    assert choose(machine(8), bind="0-2,5")[0] == Threads(4, [0, 1, 2, 5])
    assert choose(machine(8), bind="4-5|6-7")[0] == Threads(2, [4, 5])


def test_the_flag_shortens_a_list_and_does_not_pin_beyond_it() -> None:
    assert choose(machine(8), cpu_threads=2, bind="0-3")[0] == Threads(2, [0, 1])
    assert choose(machine(8), cpu_threads=6, bind="0-3")[0] == Threads(6, [])
    assert choose(machine(8), cpu_threads=4, bind="0-3")[0] == Threads(4, [0, 1, 2, 3])


def test_foreign_cpus_are_refused() -> None:
    with pytest.raises(ConfigError, match="names CPUs this process may not use: 2, 3"):
        choose(machine(8, affinity=[0, 1]), bind="0-3")


def test_a_list_counts_each_cpu_once() -> None:
    assert parse_cpu_list("0-2, 1,7") == [0, 1, 2, 7]


@pytest.mark.parametrize("text", ["a", "1-", "-1", "1,,2", "3-1", "0-3;5", " "])
def test_malformed_lists_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="OCTAVO_CPU_OMP_THREADS_BIND"):
        parse_cpu_list(text)
