"""The KV plan as places in memory: which group a layer is in, and where in a block it lies.

Runs in: workers. Knows nothing of: requests, devices, how blocks are shared out.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.messages.kv_cache import KVCacheConfig, KVCacheSpec
from octavo.ops.backend import KVPlacement, KVPool
from octavo.ops.interface import KVLayer


def kv_cache_specs(
    layers: Sequence[KVLayer], dtype: str, *, tells_prompts_apart: bool = False
) -> list[KVCacheSpec]:
    """What the layers need, for the plan in `octavo/core/kv_cache_plan.py`."""
    return [
        KVCacheSpec(
            layer=layer.layer,
            num_kv_heads=layer.num_kv_heads,
            k_head_dim=layer.k_head_dim,
            v_head_dim=layer.v_head_dim,
            dtype=dtype,
            sliding_window=layer.sliding_window,
            tells_prompts_apart=tells_prompts_apart,
        )
        for layer in layers
    ]


def place_layers(config: KVCacheConfig, layers: Sequence[KVLayer], dtype: str) -> KVPool:
    """Lays the layers of each group one after the other in a block."""
    specs = {spec.layer: spec for spec in kv_cache_specs(layers, dtype)}
    number_to_layer = {layer.layer: layer for layer in layers}
    placements = []
    for group, members in enumerate(config.groups):
        offset = 0
        for number in members.layers:
            placements.append(KVPlacement(number_to_layer[number], group, offset))
            offset += specs[number].bytes_per_token() * config.block_size
        assert offset <= config.bytes_per_block, f"KV group {group} does not fit in its block"
    assert len(placements) == len(layers), "the KV plan does not cover every layer once"
    return KVPool(config.num_blocks, config.block_size, config.bytes_per_block, placements)
