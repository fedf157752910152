"""How many KV blocks there are, of which layers, and how long a request may be.

Rules (`DESIGN.md` section 8, `docs/differences-from-vllm.md`):

- nothing given: the smaller of a quarter of what is available and room for `max(window, 65,536)`
  tokens, but room for one window if that is at most half of what is available;
- `--gpu-memory-utilization`: that share of what is available;
- `--kv-cache-memory-bytes`, `--num-gpu-blocks-override`: that much;
- a window that does not fit is lowered, with a note, unless it was given: then start fails with the
  numbers.

Called by: `octavo/core/engine_core.py`. Runs in: EngineCore.
Knows nothing of: tensors, requests, where the memory numbers come from.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from octavo.config.engine import CacheConfig
from octavo.core.kv_cache_layout import KVCacheLayout
from octavo.errors import ConfigError, StartupError
from octavo.messages.kv_cache import KVCacheConfig, KVCacheGroup, KVCacheSpec, MemoryReport

DEFAULT_SHARE = 0.25  # of available memory, when nothing is given
DEFAULT_TOKENS = 65_536
#: one window may take at most this share of available memory when no size is given
MAX_WINDOW_SHARE = 0.5


class KVCachePlan(msgspec.Struct, frozen=True):
    """The result.

    Attributes:
        config: what the workers allocate.
        max_model_len: the window that fits; it may be lower than asked.
        size_tokens: tokens that the whole cache holds.
        bytes_per_token: over all layers, while no window has been passed.
        max_concurrency: requests of the whole window that fit at the same time.
        warnings: what the user should know, one sentence each.
    """

    config: KVCacheConfig
    max_model_len: int
    size_tokens: int
    bytes_per_token: int
    max_concurrency: float
    warnings: list[str]

    def log_lines(self, device: str) -> list[str]:
        """The lines users grep for, in vLLM's words. `device` is the device's kind."""
        kind = "CPU" if device == "cpu" else "GPU"
        config, window = self.config, self.max_model_len
        size = _gib(config.num_blocks * config.bytes_per_block)
        blocks = f"{config.num_blocks:,} blocks of {config.block_size} tokens"
        concurrency = f"{self.max_concurrency:.2f}x"
        return [
            f"{kind} KV cache: {size}, {blocks}, {self.bytes_per_token:,} bytes/token",
            f"{kind} KV cache size: {self.size_tokens:,} tokens",
            f"Maximum concurrency for {window:,} tokens per request: {concurrency}",
        ]


def plan_kv_cache(
    specs: Sequence[KVCacheSpec],
    memory: MemoryReport,
    cache: CacheConfig,
    *,
    max_model_len: int,
    max_model_len_is_given: bool,
    max_num_batched_tokens: int,
) -> KVCachePlan:
    """Plans the cache.

    Args:
        specs: the need of each attention layer.
        memory: of one worker, after its weights are loaded.
        max_model_len: the window asked for, in tokens.
        max_num_batched_tokens: longest chunk; sliding windows need room for it.

    Raises:
        ConfigError: a size was given that cannot be had, or the window does not fit.
        StartupError: there is too little memory for any window.
    """
    groups = group_layers(specs)
    layout = KVCacheLayout(
        cache.block_size,
        tuple(group.sliding_window for group in groups),
        max_num_batched_tokens,
    )
    bytes_per_block = _bytes_per_block(specs, groups, cache.block_size)
    available = memory.available_bytes - memory.activation_bytes
    if available <= 0:
        raise StartupError(
            f"Too little memory: a step of up to {max_num_batched_tokens} tokens needs "
            f"{_gib(memory.activation_bytes)} and {_gib(memory.available_bytes)} are available "
            "after the weights are loaded. Lower --max-num-batched-tokens or --max-num-seqs, or "
            "free memory."
        )
    num_blocks, what = _num_blocks(layout, bytes_per_block, cache, available, max_model_len)
    window, warnings = _fit_window(
        layout, bytes_per_block, num_blocks, what, max_model_len, is_given=max_model_len_is_given
    )
    blocks_per_window = layout.blocks_for(window)
    max_concurrency = (num_blocks - 1) / blocks_per_window
    return KVCachePlan(
        config=KVCacheConfig(
            num_blocks,
            cache.block_size,
            bytes_per_block,
            groups,
            window,
            any(spec.tells_prompts_apart for spec in specs),
        ),
        max_model_len=window,
        size_tokens=(
            (num_blocks - 1) * cache.block_size
            if len(groups) == 1 and groups[0].sliding_window is None
            else int(max_concurrency * window)
        ),
        bytes_per_token=sum(spec.bytes_per_token() for spec in specs),
        max_concurrency=max_concurrency,
        warnings=warnings,
    )


def group_layers(specs: Sequence[KVCacheSpec]) -> list[KVCacheGroup]:
    """Sorts layers into groups of equal size that share block tables.

    Layers of one kind (full attention, or one window) have the same blocks at every time. A pool of
    equal blocks needs groups of equally many layers: as many as the rarest kind has, so 15 sliding
    and 3 full layers become 5 + 1 groups of 3. The last group of a kind may have fewer layers; its
    blocks are then not full.
    """
    assert specs, "a model without attention layers needs no KV cache"
    window_to_layers: dict[int | None, list[int]] = {}
    for spec in specs:
        window_to_layers.setdefault(spec.sliding_window, []).append(spec.layer)
    counts = [len(layers) for layers in window_to_layers.values()]
    size = min(counts)
    if max(counts) < 1.25 * size:  # nearly equal: padding costs less than more tables
        size = max(counts)
    return [
        KVCacheGroup(layers[start : start + size], window)
        for window, layers in window_to_layers.items()
        for start in range(0, len(layers), size)
    ]


def _bytes_per_block(
    specs: Sequence[KVCacheSpec], groups: Sequence[KVCacheGroup], block_size: int
) -> int:
    layer_to_bytes = {spec.layer: spec.bytes_per_token() for spec in specs}
    return block_size * max(sum(layer_to_bytes[n] for n in group.layers) for group in groups)


def _num_blocks(
    layout: KVCacheLayout, bytes_per_block: int, cache: CacheConfig, available: int, window: int
) -> tuple[int, str]:
    """The pool's size (one block more than requests hold), and in words where it comes from."""

    def bytes_for(num_tokens: int) -> int:
        return (layout.blocks_for(num_tokens) + 1) * bytes_per_block

    if cache.num_gpu_blocks_override is not None:
        num_blocks = cache.num_gpu_blocks_override
        if num_blocks < 2:
            raise ConfigError(
                f"--num-gpu-blocks-override {num_blocks} is too few: block 0 is never used, so at "
                "least 2 are needed."
            )
        budget = num_blocks * bytes_per_block
        if budget > available:
            raise ConfigError(
                f"--num-gpu-blocks-override {num_blocks} ({_gib(budget)}) is more than the "
                f"{_gib(available)} of memory that are available: give fewer, or free memory."
            )
        return num_blocks, f"--num-gpu-blocks-override {num_blocks}"
    if cache.kv_cache_memory_bytes is not None:
        budget = cache.kv_cache_memory_bytes
        if budget > available:
            raise ConfigError(
                f"--kv-cache-memory-bytes {budget} ({_gib(budget)}) is more than the "
                f"{_gib(available)} of memory that are available: give less, or free memory."
            )
        what = f"--kv-cache-memory-bytes {budget}"
    elif cache.gpu_memory_utilization is not None:
        budget = int(available * cache.gpu_memory_utilization)
        what = (
            f"--gpu-memory-utilization {cache.gpu_memory_utilization:g} of the "
            f"{_gib(available)} available"
        )
    else:
        most = int(available * MAX_WINDOW_SHARE)
        budget = min(int(available * DEFAULT_SHARE), bytes_for(max(window, DEFAULT_TOKENS)))
        budget = min(max(budget, bytes_for(window)), most)
        what = f"half of the {_gib(available)} available"
    num_blocks = budget // bytes_per_block
    if num_blocks < 2:
        raise StartupError(
            f"Too little memory for a KV cache: one block takes {_mib(bytes_per_block)}, "
            f"at least two are needed, but {what} is {_mib(budget)}. Free memory, or give "
            "--kv-cache-memory-bytes."
        )
    return num_blocks, what


def _fit_window(
    layout: KVCacheLayout,
    bytes_per_block: int,
    num_blocks: int,
    what: str,
    window: int,
    *,
    is_given: bool,
) -> tuple[int, list[str]]:
    """Lowers the window to what fits, or refuses to."""
    fits = layout.longest(num_blocks - 1, window)
    if fits >= window:
        return window, []
    needed = _gib((layout.blocks_for(window) + 1) * bytes_per_block)
    have = _gib(num_blocks * bytes_per_block)
    if fits == 0:
        raise StartupError(
            f"Too little memory for a KV cache: {what} gives {have}, in which not even one token "
            "of all layers fits. Give a larger --kv-cache-memory-bytes."
        )
    if is_given:
        raise ConfigError(
            f"To serve at least one request with the model's max seq len ({window}), {needed} KV "
            f"cache is needed, which is larger than the available KV cache memory ({have}: {what})."
            f" Based on the available memory, the estimated maximum model length is {fits}. Try "
            "decreasing `--max-model-len`, or increasing `--kv-cache-memory-bytes` or "
            "`--gpu-memory-utilization`."
        )
    warning = (
        f"The window is lowered from {window} to {fits} tokens: {needed} of KV cache would be "
        f"needed and {have} can be had ({what}). Give --kv-cache-memory-bytes for more."
    )
    return fits, [warning]


def _gib(num_bytes: int) -> str:
    if num_bytes < 1 << 20:
        return f"{num_bytes} bytes"
    if num_bytes < 1 << 27:
        return _mib(num_bytes)
    return f"{num_bytes / (1 << 30):.2f} GiB"


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / (1 << 20):.2f} MiB"
