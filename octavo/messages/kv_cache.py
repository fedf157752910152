"""What a worker says of its KV needs, and what the plan gives it.

Written by: `octavo/worker/model_runner.py` (specs), `octavo/core/kv_cache_plan.py` (config).
"""

from __future__ import annotations

import msgspec


class KVCacheSpec(msgspec.Struct, frozen=True, array_like=True):
    """KV need of one attention layer. `sliding_window` is None for full attention.

    `tells_prompts_apart`: K and V of a generated token are not those of the same token in a prompt,
    because the two are computed in different ways.
    """

    layer: int
    num_kv_heads: int
    k_head_dim: int
    v_head_dim: int
    dtype: str  # a key of DTYPE_BYTES
    sliding_window: int | None = None
    tells_prompts_apart: bool = False

    def bytes_per_token(self) -> int:
        """Bytes of K and V of one token in this layer, scales included."""
        values = (self.k_head_dim + self.v_head_dim) * DTYPE_BYTES[self.dtype]
        return self.num_kv_heads * (values + SCALE_BYTES.get(self.dtype, 0))


class KVCacheGroup(msgspec.Struct, frozen=True, array_like=True):
    """Layers that share block tables: a block holds `block_size` tokens of all of them."""

    layers: list[int]
    sliding_window: int | None = None


class KVCacheConfig(msgspec.Struct, frozen=True, array_like=True):
    """The one pool of equal blocks. Block 0 is the null block: padding reads from it, nobody owns
    it."""

    num_blocks: int
    block_size: int
    bytes_per_block: int
    groups: list[KVCacheGroup]
    max_model_len: int | None = None  # the window, which memory may have lowered; None: the model's
    tells_prompts_apart: bool = False  # see `KVCacheSpec`: such tokens do not share blocks


class MemoryReport(msgspec.Struct, frozen=True, array_like=True):
    """A worker's memory in bytes after its weights are loaded."""

    available_bytes: int  # limit (cgroup or RAM) less what is in use
    weight_bytes: int
    activation_bytes: int


#: element type of a cache -> bytes of one value
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1, "fp8_e4m3": 1}
#: element type -> bytes of the scales of one token and KV head: an f32 for K and one for V
SCALE_BYTES = {"int8": 8, "fp8_e4m3": 8}
