"""Opens the backend of a device.

Runs in: workers. Knows nothing of: models, requests.
"""

from __future__ import annotations

from octavo.config.engine import DeviceConfig
from octavo.errors import ConfigError
from octavo.ops.backend import Backend
from octavo.ops.ggml_type import GGMLType
from octavo.ops.library import Library, load_library
from octavo.ops.native import NativeBackend
from octavo.ops.plan import PlanOptions
from octavo.ops.program import ElementType
from octavo.platforms.cpu import cpu_facts

#: How long compute threads spin for work before they sleep.
SPIN_US = 50


def open_backend(
    device: DeviceConfig, dtype: str, cache_dtype: str, prompt_dtype: str = "auto"
) -> Backend:
    """The native library on a CPU, PyTorch on anything else.

    Args:
        device: which device, how many threads.
        dtype: "auto", "float32" or "bfloat16" (`--dtype`).
        cache_dtype: `--kv-cache-dtype`.
        prompt_dtype: `--prompt-dtype`.

    Raises:
        ConfigError: prompts cannot be computed in `prompt_dtype` there.
        StartupError: the native library is missing or does not run on this CPU.
    """
    if device.device == "cpu":
        quota = cpu_facts().cpu_quota
        # a spinning thread burns a quota that the working ones need
        may_spin = quota is None or quota >= device.num_threads
        library = load_library(device.isa)
        if prompt_dtype == "bfloat16":
            _check_reads_prompts_in_bfloat16(library)
        return NativeBackend(
            library,
            num_threads=device.num_threads,
            spin_us=SPIN_US if may_spin else 0,
            cpus=device.cpu_ids or None,
            dtype=dtype,
            cache_dtype=cache_dtype,
            options=PlanOptions(prompts_as_generated=prompt_dtype == "int8"),
        )
    if prompt_dtype != "auto":
        raise ConfigError(
            f"--prompt-dtype {prompt_dtype} is for CPUs: on {device.device} all tokens are "
            "computed in the same way; leave it out"
        )
    # PyTorch takes seconds to import and is an extra: never loaded on the CPU path
    from octavo.ops.torch import TorchBackend

    return TorchBackend(device.device, dtype, cache_dtype)


def _check_reads_prompts_in_bfloat16(library: Library) -> None:
    # any quantised kind: a level has kernels for all of them or for none
    if library.input_type(GGMLType.Q8_0, is_prompt=True) != ElementType.BF16:
        raise ConfigError(
            f"--prompt-dtype bfloat16 needs tile registers (level amx); the level here is "
            f"{library.isa}: leave it out, or use --dtype bfloat16 for all tokens"
        )
