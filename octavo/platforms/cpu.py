"""The CPUs and the memory this process may use: affinity, cgroup limits, cores, instruction sets.

Everything is read from /proc and /sys below an injectable root, so that tests can build machines
out of files. Both cgroup versions are read, and every level of nesting counts: a limit on a parent
binds as much as one on the process's own group.

Runs in: every process. Knows nothing of: models, kernels, flags.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator

import msgspec

from octavo.config.facts import DeviceFacts
from octavo.platforms.amx import tiles_granted

_AVX2 = {"avx2", "fma", "f16c", "bmi1", "bmi2", "movbe"}
_AVX512_VNNI = _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_vnni"}
#: instruction-set levels of the native library, best first, and the CPU flags each needs: x86-64's
#: of /proc/cpuinfo, aarch64's as the kernel names HWCAP bits
ISA_FLAGS: dict[str, set[str]] = {
    "amx": _AVX512_VNNI | {"avx512_bf16", "avx512vbmi", "amx_tile", "amx_int8", "amx_bf16"},
    "avx512_bf16": _AVX512_VNNI | {"avx512_bf16"},
    "avx512_vnni": _AVX512_VNNI,
    "avx2": _AVX2,
    "neon_i8mm": {"asimddp", "i8mm", "bf16"},
    "neon_dotprod": {"asimddp"},
}
#: what a CPU that runs a level runs, too: the levels after it in its family
_FAMILIES = (
    ("amx", "avx512_bf16", "avx512_vnni", "avx2", "scalar"),
    ("neon_i8mm", "neon_dotprod", "scalar"),
)
#: auxiliary vector entry and bit -> flag (linux/arch/arm64/include/uapi/asm/hwcap.h)
_AARCH64_HWCAPS = {(16, 20): "asimddp", (26, 13): "i8mm", (26, 14): "bf16"}


def cpu_facts() -> DeviceFacts:
    """The share of this machine that this process may use, measured now."""
    return CpuPlatform().facts()


def available_memory_bytes() -> int:
    """Memory this process may still take: cgroup limits and RAM less what is in use."""
    return CpuPlatform().memory().available_bytes


class Memory(msgspec.Struct, frozen=True):
    """Bytes this process may use in all, and those still free of them."""

    limit_bytes: int
    available_bytes: int


class CpuPlatform:
    """A Linux machine seen through its files.

    Args:
        root: folder that holds `proc` and `sys`.
        affinity: the CPUs this process may run on.
        machine: the architecture as uname(2) calls it.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] = "/",
        affinity: Callable[[], set[int]] = lambda: os.sched_getaffinity(0),
        machine: str = os.uname().machine,
    ) -> None:
        self._root = os.fspath(root)
        self._affinity = affinity
        self._machine = machine

    def facts(self) -> DeviceFacts:
        """Everything at once."""
        affinity = sorted(self._affinity())
        flags, name = self._cpu_info()
        if self._machine == "aarch64":
            flags = self._hardware_capabilities()
        memory = self.memory()
        return DeviceFacts(
            isa=best_isa(flags),
            cpu_name=name,
            num_physical_cores=self._num_physical_cores(affinity),
            num_logical_cpus=len(self._cpu_list("sys/devices/system/cpu/online")) or len(affinity),
            cpu_affinity=affinity,
            cpu_quota=self.cpu_quota(),
            memory_limit_bytes=memory.limit_bytes,
            memory_available_bytes=memory.available_bytes,
            num_numa_nodes=max(len(self._cpu_list("sys/devices/system/node/online")), 1),
        )

    def cpu_quota(self) -> float | None:
        """The tightest cgroup quota in CPUs; None: no limit."""
        quotas = []
        for folder in self._cgroup_folders("cpu"):
            fields = _read(f"{folder}/cpu.max").split()  # version 2: "150000 100000" or "max ..."
            if not fields:
                fields = [
                    _read(f"{folder}/cpu.cfs_quota_us"),
                    _read(f"{folder}/cpu.cfs_period_us"),
                ]
            if len(fields) == 2 and fields[0].isdigit() and fields[1].isdigit():
                quotas.append(int(fields[0]) / int(fields[1]))
        return min(quotas, default=None)

    def memory(self) -> Memory:
        """The tightest limit and the least free memory over the machine and all cgroup levels."""
        meminfo = _table(_read(self._path("proc/meminfo")))
        limit, available = meminfo["MemTotal"] * 1024, meminfo["MemAvailable"] * 1024
        for folder in self._cgroup_folders("memory"):
            for limit_name, usage_name in (
                ("memory.max", "memory.current"),
                ("memory.high", "memory.current"),
                ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            ):
                group_limit = _read(f"{folder}/{limit_name}")
                usage = _read(f"{folder}/{usage_name}")
                if not group_limit.isdigit() or not usage.isdigit():
                    continue
                # the page cache of files is given back under pressure
                stat = _table(_read(f"{folder}/memory.stat"))
                prefix = "total_" if "total_inactive_file" in stat else ""
                cache = stat.get(f"{prefix}inactive_file", 0) + stat.get(f"{prefix}active_file", 0)
                limit = min(limit, int(group_limit))
                available = min(available, int(group_limit) - max(int(usage) - cache, 0))
        return Memory(limit, max(available, 0))

    def _num_physical_cores(self, affinity: list[int]) -> int:
        """Cores that have at least one thread in `affinity`."""
        cores = set()
        for cpu in affinity:
            topology = f"sys/devices/system/cpu/cpu{cpu}/topology/"
            siblings = self._cpu_list(topology + "core_cpus_list") or self._cpu_list(
                topology + "thread_siblings_list"
            )
            cores.add(tuple(siblings) or (cpu,))
        return len(cores)

    def _cpu_info(self) -> tuple[set[str], str]:
        """Flags and name of the first CPU."""
        flags: set[str] = set()
        name = ""
        with open(self._path("proc/cpuinfo"), encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.isspace() and flags:
                    break  # one paragraph per CPU, and the kernel takes its time for each
                key, _, value = line.partition(":")
                if key.strip() == "flags":
                    flags = set(value.split())
                elif key.strip() == "model name":
                    name = value.strip()
        return flags, name or self._machine

    def _hardware_capabilities(self) -> set[str]:
        """Flags of an aarch64 CPU that levels ask for, as getauxval(3) would tell them: emulators
        show /proc/cpuinfo of the machine they run on."""
        try:
            with open(self._path("proc/self/auxv"), "rb") as file:
                vector = dict(struct.iter_unpack("<QQ", file.read()))
        except OSError:
            return set()
        return {
            flag
            for (entry, bit), flag in _AARCH64_HWCAPS.items()
            if vector.get(entry, 0) >> bit & 1
        }

    def _cpu_list(self, path: str) -> list[int]:
        """Numbers of a list such as "0-3,8"; empty when the file is not there."""
        numbers: list[int] = []
        for part in _read(self._path(path)).split(","):
            first, _, last = part.partition("-")
            if first.isdigit():
                numbers.extend(range(int(first), int(last or first) + 1))
        return numbers

    def _cgroup_folders(self, controller: str) -> Iterator[str]:
        """This process's group of a controller and its parents, innermost first."""
        membership = self._cgroup_membership()
        for line in _read(self._path("proc/self/mountinfo")).splitlines():
            head, _, tail = line.partition(" - ")
            mount_root, mount_point = head.split()[3:5]
            filesystem, _, options = tail.split(maxsplit=2)
            if filesystem == "cgroup2":
                group = membership.get("")
            elif filesystem == "cgroup" and controller in options.split(","):
                group = membership.get(controller)
            else:
                continue
            if group is None:
                continue
            mount = self._path(mount_point.strip("/"))
            relative = _relative(group, mount_root)
            while relative:
                yield f"{mount}/{relative}"
                relative = relative.rpartition("/")[0]
            yield mount

    def _path(self, relative: str) -> str:
        return os.path.join(self._root, relative)

    def _cgroup_membership(self) -> dict[str, str]:
        """Controller -> path of the group; "" is version 2's only hierarchy."""
        controller_to_group = {}
        for line in _read(self._path("proc/self/cgroup")).splitlines():
            _, controllers, group = line.split(":", maxsplit=2)
            for controller in controllers.split(","):
                controller_to_group[controller] = group
        return controller_to_group


def best_isa(flags: set[str], tiles_granted: Callable[[], bool] = tiles_granted) -> str:
    """The best level whose instructions are all among a CPU's flags.

    Args:
        tiles_granted: whether the kernel lets this process use the registers of the `amx` level;
            asked only where the CPU has them.
    """
    for isa, needed in ISA_FLAGS.items():
        if needed <= flags and (isa != "amx" or tiles_granted()):
            return isa
    return "scalar"


def runnable_isas(best: str) -> tuple[str, ...]:
    """Levels that a CPU runs whose best one is `best`, best first."""
    family = next(family for family in _FAMILIES if best in family)
    return family[family.index(best) :]


def _relative(group: str, mount_root: str) -> str:
    """Path of a group below its mount.

    In a container the mount shows only the part below `mount_root`, and a group outside of it
    (seen through a namespace) is the mount itself.
    """
    if mount_root != "/":
        if group != mount_root and not group.startswith(mount_root + "/"):
            return ""
        group = group[len(mount_root) :]
    return "" if ".." in group else group.strip("/")


def _read(path: str) -> str:
    """A file's text without the line end; empty when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _table(text: str) -> dict[str, int]:
    """Lines of "name[:] number ..." as a dict."""
    table = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[1].isdigit():
            table[fields[0].rstrip(":")] = int(fields[1])
    return table
