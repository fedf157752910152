"""The share of a machine, read from machines made of files."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from octavo.config.rules.threads import choose_threads
from octavo.platforms.cpu import CpuPlatform, best_isa, cpu_facts, runnable_isas

GIB = 2**30


class Machine:
    """Writes /proc and /sys below a folder. `cores` lists the CPUs of each core."""

    def __init__(self, root: Path, cores: list[list[int]], ram_bytes: int = 64 * GIB) -> None:
        self.root = root
        self.cpus = sorted(cpu for core in cores for cpu in core)
        self.write("proc/cpuinfo", "processor : 0\nmodel name : Test CPU\nflags : avx2 fma\n")
        self.write(
            "proc/meminfo",
            f"MemTotal: {ram_bytes // 1024} kB\nMemAvailable: {ram_bytes // 2048} kB\n",
        )
        self.write("proc/self/cgroup", "0::/\n")
        self.write("proc/self/mountinfo", "")
        self.write("sys/devices/system/cpu/online", f"0-{len(self.cpus) - 1}\n")
        self.write("sys/devices/system/node/online", "0\n")
        for core in cores:
            for cpu in core:
                siblings = ",".join(map(str, core))
                self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list", siblings)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def platform(self, affinity: set[int] | None = None) -> CpuPlatform:
        return CpuPlatform(self.root, lambda: affinity or set(self.cpus))

    def mount_v2(self, root: str = "/", group: str = "/") -> None:
        self.write("proc/self/cgroup", f"0::{group}\n")
        self.write(
            "proc/self/mountinfo",
            f"30 23 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw,nsdelegate\n",
        )

    def mount_v1(self, group: str) -> None:
        self.write("proc/self/cgroup", f"4:memory:{group}\n3:cpu,cpuacct:{group}\n0::/\n")
        self.write(
            "proc/self/mountinfo",
            "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
            "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Sixteen cores of two threads each, no limits."""
    return Machine(tmp_path, [[n, n + 16] for n in range(16)])


def test_physical_cores_are_told_from_hyperthreads(machine: Machine) -> None:
    facts = machine.platform().facts()
    assert (facts.num_physical_cores, facts.num_logical_cpus) == (16, 32)


def test_a_quota_is_read_as_cpus(machine: Machine) -> None:
    machine.mount_v2()
    machine.write("sys/fs/cgroup/cpu.max", "150000 100000\n")
    facts = machine.platform().facts()
    assert facts.cpu_quota == 1.5


def test_c121_a_group_of_one_and_a_half_cpus_gets_one_compute_thread(machine: Machine) -> None:
    machine.mount_v2()
    machine.write("sys/fs/cgroup/cpu.max", "150000 100000\n")
    facts = machine.platform().facts()
    choice = choose_threads(None, bind="auto", num_reserved=None, device=facts)
    assert choice.value.num_threads == 1
    assert "a quota of 1.5 CPUs" in choice.reason


def test_two_threads_of_one_core_are_one_core(machine: Machine) -> None:
    facts = machine.platform({3, 19, 4}).facts()
    assert facts.cpu_affinity == [3, 4, 19]
    assert facts.num_physical_cores == 2
    assert machine.platform({5}).facts().num_physical_cores == 1


def test_the_tightest_quota_of_all_levels_binds(machine: Machine) -> None:
    machine.mount_v2(group="/pod/container")
    machine.write("sys/fs/cgroup/cpu.max", "max 100000\n")
    machine.write("sys/fs/cgroup/pod/cpu.max", "300000 100000\n")
    machine.write("sys/fs/cgroup/pod/container/cpu.max", "800000 100000\n")
    assert machine.platform().cpu_quota() == 3


def test_a_container_sees_its_own_group_as_the_mount(machine: Machine) -> None:
    machine.mount_v2(root="/pod/container", group="/pod/container")
    machine.write("sys/fs/cgroup/cpu.max", "200000 100000\n")
    assert machine.platform().cpu_quota() == 2


def test_a_group_outside_of_the_mount_is_the_mount(machine: Machine) -> None:
    machine.mount_v2(root="/", group="/../../host")
    machine.write("sys/fs/cgroup/cpu.max", "200000 100000\n")
    assert machine.platform().cpu_quota() == 2


def test_quota_and_memory_of_version_one(machine: Machine) -> None:
    machine.mount_v1("/docker/abc")
    cpu, memory = "sys/fs/cgroup/cpu,cpuacct/docker/abc/", "sys/fs/cgroup/memory/docker/abc/"
    machine.write(cpu + "cpu.cfs_quota_us", "250000\n")
    machine.write(cpu + "cpu.cfs_period_us", "100000\n")
    machine.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
    machine.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    machine.write(memory + "memory.limit_in_bytes", f"{4 * GIB}\n")
    machine.write(memory + "memory.usage_in_bytes", f"{3 * GIB}\n")
    machine.write(memory + "memory.stat", f"total_inactive_file {GIB}\ntotal_active_file 0\n")
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    machine.write("sys/fs/cgroup/memory/memory.usage_in_bytes", f"{9 * GIB}\n")
    facts = machine.platform().facts()
    assert facts.cpu_quota == 2.5
    assert facts.memory_limit_bytes == 4 * GIB
    assert facts.memory_available_bytes == 2 * GIB


def test_memory_without_limits_is_the_machines(machine: Machine) -> None:
    machine.mount_v2()
    machine.write("sys/fs/cgroup/memory.max", "max\n")
    machine.write("sys/fs/cgroup/memory.current", f"{GIB}\n")
    facts = machine.platform().facts()
    assert (facts.memory_limit_bytes, facts.memory_available_bytes) == (64 * GIB, 32 * GIB)


def test_page_cache_counts_as_available_in_a_limited_group(machine: Machine) -> None:
    machine.mount_v2(group="/box")
    machine.write("sys/fs/cgroup/box/memory.max", f"{8 * GIB}\n")
    machine.write("sys/fs/cgroup/box/memory.current", f"{6 * GIB}\n")
    machine.write("sys/fs/cgroup/box/memory.stat", f"inactive_file {2 * GIB}\nactive_file {GIB}\n")
    memory = machine.platform().memory()
    assert (memory.limit_bytes, memory.available_bytes) == (8 * GIB, 5 * GIB)


def test_a_parents_memory_limit_binds(machine: Machine) -> None:
    machine.mount_v2(group="/slice/box")
    machine.write("sys/fs/cgroup/slice/memory.max", f"{2 * GIB}\n")
    machine.write("sys/fs/cgroup/slice/memory.current", f"{GIB}\n")
    machine.write("sys/fs/cgroup/slice/box/memory.max", f"{16 * GIB}\n")
    machine.write("sys/fs/cgroup/slice/box/memory.current", "0\n")
    memory = machine.platform().memory()
    assert (memory.limit_bytes, memory.available_bytes) == (2 * GIB, GIB)


def test_numa_nodes_are_counted(machine: Machine) -> None:
    machine.write("sys/devices/system/node/online", "0-1,4\n")
    assert machine.platform().facts().num_numa_nodes == 3


AVX2 = "avx2 fma f16c bmi1 bmi2 movbe"
AVX512 = AVX2 + " avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ("sse2", "scalar"),
        (AVX2, "avx2"),
        (AVX512, "avx2"),
        (AVX512 + " avx512_vnni", "avx512_vnni"),
        (AVX512 + " avx512_vnni avx512_bf16", "avx512_bf16"),
        (AVX512 + " avx512_bf16", "avx2"),
        (AVX512 + " avx512_vnni avx512_bf16 avx512vbmi amx_tile amx_int8 amx_bf16", "amx"),
        (AVX512 + " avx512_vnni avx512_bf16 avx512vbmi amx_tile amx_int8", "avx512_bf16"),
    ],
)
def test_the_level_needs_all_of_its_instructions(flags: str, level: str) -> None:
    assert best_isa(set(flags.split()), lambda: True) == level


def test_tiles_that_the_kernel_refuses_are_not_used() -> None:
    flags = set(f"{AVX512} avx512_vnni avx512_bf16 avx512vbmi amx_tile amx_int8 amx_bf16".split())
    assert best_isa(flags, lambda: False) == "avx512_bf16"


@pytest.mark.parametrize(
    ("hwcap", "hwcap2", "level"),
    [
        (0x8FB, 0, "scalar"),  # Cortex-A72
        (0x119FFB, 0, "neon_dotprod"),  # Neoverse N1
        (0x119FFB, 1 << 13, "neon_dotprod"),  # i8mm without bf16
        (0x119FFB, 1 << 13 | 1 << 14, "neon_i8mm"),
        (0x19FFB, 1 << 13 | 1 << 14, "scalar"),  # no dot products
    ],
)
def test_capabilities_of_aarch64_come_from_the_auxiliary_vector(
    machine: Machine, hwcap: int, hwcap2: int, level: str
) -> None:
    vector = struct.pack("<8Q", 6, 4096, 16, hwcap, 26, hwcap2, 0, 0)
    (machine.root / "proc/self/auxv").write_bytes(vector)
    platform = CpuPlatform(machine.root, lambda: {0}, "aarch64")
    assert platform.facts().isa == level
    assert machine.platform().facts().isa == "scalar"  # the bits mean other things on x86-64


def test_a_cpu_runs_the_levels_below_its_best_of_its_own_family() -> None:
    assert runnable_isas("avx512_vnni") == ("avx512_vnni", "avx2", "scalar")
    assert runnable_isas("neon_i8mm") == ("neon_i8mm", "neon_dotprod", "scalar")
    assert runnable_isas("scalar") == ("scalar",)


def test_this_machine_is_read_without_error() -> None:
    facts = cpu_facts()
    assert facts.num_physical_cores >= 1
    assert 0 < facts.memory_available_bytes <= facts.memory_limit_bytes
