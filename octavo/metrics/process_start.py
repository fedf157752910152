"""When this process began, on the clock that all processes of the host share.

Runs in: every process. Knows nothing of: what start-up consists of.
"""

from __future__ import annotations

import os
import time


def process_start_s() -> float:
    """`time.monotonic()` at which the kernel made this process; exact to a clock tick (10 ms)."""
    with open("/proc/self/stat", "rb") as file:
        # fields of proc(5) from the third on: the second one, the name, may contain spaces
        fields = file.read().rpartition(b")")[2].split()
    since_boot_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # starttime
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot_s
    return time.monotonic() - max(age_s, 0.0)
