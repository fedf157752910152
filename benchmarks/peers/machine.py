"""What a reader of figures needs to know of the machine and the programs."""

from __future__ import annotations

import platform
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

from octavo import __version__
from octavo.ops.library import load_library
from octavo.platforms.cpu import cpu_facts

ROOT = Path(__file__).resolve().parents[2]


def machine_facts() -> dict[str, Any]:
    """CPU, instructions, memory, versions, day and commit."""
    cpu = cpu_facts()
    return {
        "cpu": cpu.cpu_name,
        "cores": cpu.num_physical_cores,
        "isa": load_library(None).isa,
        "l3_mib": _l3_mib(),
        "memory_gib": round(_meminfo_kib("MemTotal") / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "octavo": __version__,
        "commit": _git("rev-parse", "--short", "HEAD"),
        "is_modified": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "date": date.today().isoformat(),
    }


def _l3_mib() -> float:
    """Of the first core's last-level cache; 0 if the system does not say."""
    path = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    if not path.exists():
        return 0.0
    text = path.read_text().strip()
    return int(text.rstrip("KM")) / (1024 if text.endswith("K") else 1)


def _meminfo_kib(key: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1])
    return 0


def _git(*words: str) -> str:
    run = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return run.stdout.strip()
