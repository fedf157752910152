"""Asking the kernel for the tile registers of AMX.

Their 8 KiB of state per thread must be requested once per process before the first use (Linux
5.16 and later); a kernel, hypervisor or sandbox may refuse although the CPU lists the instructions.
Threads started later have the permission too, programs started with exec do not.

Runs in: every process that asks what this CPU runs. Knows nothing of: kernels.
"""

from __future__ import annotations

import os
from functools import cache

#: arch_prctl(2) on x86-64: request permission for a dynamically enabled feature, here tile data
_SYS_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18


@cache
def tiles_granted() -> bool:
    """Requests the permission; True when this process has it from now on."""
    if os.uname().machine != "x86_64":
        return False
    import ctypes  # 10 ms, and only machines that list AMX come here

    syscall = ctypes.CDLL(None).syscall
    syscall.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_long]
    syscall.restype = ctypes.c_long
    return bool(syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) == 0)
