"""How many compute threads, and on which CPUs.

Unlike vLLM no core is kept back for the engine process: its loop sleeps when idle and shares a
core with the pool's first worker.

Runs in: the API process, `LLM`. Knows nothing of: the pool.
"""

from __future__ import annotations

from typing import NamedTuple

from octavo.config.facts import DeviceFacts
from octavo.config.rules.choice import Choice
from octavo.errors import ConfigError

BIND = "OCTAVO_CPU_OMP_THREADS_BIND"


class Threads(NamedTuple):
    """Compute threads; `cpu_ids` pins one thread to each, empty leaves placement to the pool."""

    num_threads: int
    cpu_ids: list[int]


def choose_threads(
    cpu_threads: int | None, *, bind: str, num_reserved: int | None, device: DeviceFacts
) -> Choice[Threads]:
    """Threads by flag, by the list in CPU_OMP_THREADS_BIND, or by what the machine grants.

    Args:
        cpu_threads: --cpu-threads.
        bind: auto, nobind, or a list of CPUs: 0-3,8 (one part per rank, separated by |).
        num_reserved: CPU_NUM_OF_RESERVED_CPU, cores to leave free.
        device: affinity, quota and cores.

    Raises:
        ConfigError: the list is malformed or names CPUs that this process may not use.
    """
    if bind not in ("auto", "nobind", "all", ""):
        return _listed(cpu_threads, bind, device)
    num_allowed = len(device.cpu_affinity)
    if cpu_threads is not None:
        more = f", more than the {num_allowed} CPUs this process may use"
        beyond = more if cpu_threads > num_allowed else ""
        return Choice(Threads(cpu_threads, []), f"{_count(cpu_threads)} (--cpu-threads){beyond}")
    threads = min(device.num_physical_cores, num_allowed)
    limits = [f"{device.num_physical_cores} physical cores", f"{num_allowed} CPUs allowed"]
    if device.cpu_quota is not None:
        threads = min(threads, int(device.cpu_quota))
        limits.append(f"a quota of {device.cpu_quota:g} CPUs")
    if num_reserved:
        threads -= num_reserved
        limits.append(f"{num_reserved} reserved")
    threads = max(threads, 1)
    return Choice(Threads(threads, []), f"{_count(threads)}: {', '.join(limits)}")


def parse_cpu_list(text: str) -> list[int]:
    """CPU numbers of `0-3,8`, in order, without repeats.

    Raises:
        ConfigError: malformed.
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ConfigError(
                f"{BIND} must be auto, nobind or a list of CPUs such as 0-3,8, got {text!r}"
            )
        end = int(last) if dash else int(first)
        if end < int(first):
            raise ConfigError(f"{BIND}: the range {part.strip()} ends before it begins")
        numbers.extend(range(int(first), end + 1))
    return list(dict.fromkeys(numbers))


def _listed(cpu_threads: int | None, bind: str, device: DeviceFacts) -> Choice[Threads]:
    cpu_ids = parse_cpu_list(bind.split("|")[0])
    foreign = [str(cpu) for cpu in cpu_ids if cpu not in device.cpu_affinity]
    if foreign:
        raise ConfigError(
            f"{BIND}={bind} names CPUs this process may not use: {', '.join(foreign)}"
        )
    if cpu_threads is not None and cpu_threads != len(cpu_ids):
        cpu_ids = cpu_ids[:cpu_threads] if cpu_threads < len(cpu_ids) else []
        return Choice(
            Threads(cpu_threads, cpu_ids),
            f"{_count(cpu_threads)} (--cpu-threads comes before the length of {BIND}={bind})",
        )
    return Choice(Threads(len(cpu_ids), cpu_ids), f"{_count(len(cpu_ids))} pinned by {BIND}={bind}")


def _count(threads: int) -> str:
    return f"{threads} compute thread{'s' if threads != 1 else ''}"
