"""Events of the prefix cache as subscribers outside read them: vLLM's structs, field for field.

A batch is an array `[ts, events, data_parallel_rank]`; each event is a map with its class name
under `type`, its required fields in order, and optional fields only where they are set. Subscribers
written for vLLM 0.32 (`vllm/distributed/kv_events.py`) decode them unchanged, so names, order,
defaults and nulls here are a contract with them.

Written by: `octavo/core/kv_events.py`. Read by: routers and cache indexers on the network.
Knows nothing of: sockets, the block pool.
"""

from __future__ import annotations

import msgspec

#: the first 8 bytes of a hash as a number, or all of it
ExternalHash = int | bytes
#: where the blocks are; vLLM says GPU for the first tier of any device, CPU for the offloaded one
MEDIUM = "GPU"


class BlockStored(msgspec.Struct, tag=True, omit_defaults=True, gc=False):
    """Consecutive blocks of one group can be found now.

    `token_ids` are the `len(block_hashes) * block_size` tokens of the blocks; `parent_block_hash`
    is the name of the block before the first, None at a prompt's beginning. `extra_keys` has an
    entry per block: what its hash covers besides tokens (adapter name, cache salt, `generated:n`
    where tokens from place n on were generated and that makes a difference), or None.
    """

    block_hashes: list[ExternalHash]
    parent_block_hash: ExternalHash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[str, ...] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None  # full_attention, sliding_window
    kv_cache_spec_sliding_window: int | None = None


class BlockRemoved(msgspec.Struct, tag=True, omit_defaults=True, gc=False):
    """Blocks of one group can no longer be found."""

    block_hashes: list[ExternalHash]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, tag=True, omit_defaults=True, gc=False):
    """No block of any group can be found any more."""


KVCacheEvent = BlockStored | BlockRemoved | AllBlocksCleared


class KVEventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """What changed in one step, in order. `ts` is Unix time in seconds."""

    ts: float
    events: list[KVCacheEvent]
    data_parallel_rank: int | None = None
