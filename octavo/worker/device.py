"""Opens the backend of a device.

Runs in: workers. Knows nothing of: models, requests.
"""

from __future__ import annotations

from octavo.config.engine import DeviceConfig
from octavo.ops.backend import Backend
from octavo.ops.library import load_library
from octavo.ops.native import NativeBackend
from octavo.platforms.cpu import cpu_facts

#: How long compute threads spin for work before they sleep.
SPIN_US = 50


def open_backend(device: DeviceConfig, dtype: str, cache_dtype: str) -> Backend:
    """The native library on a CPU, PyTorch on anything else.

    Args:
        device: which device, how many threads.
        dtype: "auto", "float32" or "bfloat16" (`--dtype`).
        cache_dtype: `--kv-cache-dtype`.

    Raises:
        StartupError: the native library is missing or does not run on this CPU.
    """
    if device.device == "cpu":
        quota = cpu_facts().cpu_quota
        # a spinning thread burns a quota that the working ones need
        may_spin = quota is None or quota >= device.num_threads
        return NativeBackend(
            load_library(device.isa),
            num_threads=device.num_threads,
            spin_us=SPIN_US if may_spin else 0,
            cpus=device.cpu_ids or None,
            dtype=dtype,
            cache_dtype=cache_dtype,
        )
    # PyTorch takes seconds to import and is an extra: never loaded on the CPU path
    from octavo.ops.torch import TorchBackend

    return TorchBackend(device.device, dtype, cache_dtype)
