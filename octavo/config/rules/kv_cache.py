"""Size and shape of the KV cache as far as flags and environment say it.

Runs in: the API process, `LLM`. Knows nothing of: memory and layers (see core/kv_cache_plan.py).
"""

from __future__ import annotations

from octavo.config.rules.choice import Choice
from octavo.errors import ConfigError

BLOCK_SIZE_UNIT = 16  # tokens; kernels read keys and values 16 at a time
GIB = 2**30


def check_block_size(block_size: int) -> int:
    """Tokens per block.

    Raises:
        ConfigError: not a multiple of 16.
    """
    if block_size % BLOCK_SIZE_UNIT:
        below = max(BLOCK_SIZE_UNIT, block_size // BLOCK_SIZE_UNIT * BLOCK_SIZE_UNIT)
        raise ConfigError(
            f"--block-size must be a multiple of {BLOCK_SIZE_UNIT}, got {block_size}; "
            f"try {below} or {below + BLOCK_SIZE_UNIT}"
        )
    return block_size


def choose_cache_bytes(
    kv_cache_memory_bytes: int | None, cpu_kvcache_space_gib: float | None
) -> Choice[int | None]:
    """Bytes of the KV cache; None: by the share of memory. The flag comes before the variable."""
    if not cpu_kvcache_space_gib:  # 0 is vLLM's spelling of "not set"
        return Choice(kv_cache_memory_bytes)
    from_variable = int(cpu_kvcache_space_gib * GIB)
    if kv_cache_memory_bytes is None:
        return Choice(
            from_variable, f"KV cache of {cpu_kvcache_space_gib:g} GiB: CPU_KVCACHE_SPACE is set"
        )
    if kv_cache_memory_bytes == from_variable:
        return Choice(kv_cache_memory_bytes)
    return Choice(
        kv_cache_memory_bytes,
        f"KV cache of {kv_cache_memory_bytes} bytes: --kv-cache-memory-bytes comes before "
        "CPU_KVCACHE_SPACE",
    )


def choose_hash_algorithm(algorithm: str) -> Choice[str]:
    """How prefix blocks are named. xxhash only promises to be faster, at the price of collisions
    that can be made on purpose; nobody who asks for it depends on its values."""
    if not algorithm.startswith("xxhash"):
        return Choice(algorithm)
    used = algorithm.replace("xxhash", "sha256")
    return Choice(used, f"prefix blocks are hashed with {used}: there is no {algorithm} here")


def check_utilization(gpu_memory_utilization: float | None) -> float | None:
    """Share of the device's memory, above 0 and at most 1.

    Raises:
        ConfigError: zero.
    """
    if gpu_memory_utilization == 0:
        raise ConfigError("--gpu-memory-utilization must be above 0 and at most 1, got 0")
    return gpu_memory_utilization
