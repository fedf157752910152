"""Layers' places in a block."""

from __future__ import annotations

import pytest

from octavo.messages.kv_cache import DTYPE_BYTES, KVCacheConfig, KVCacheGroup
from octavo.ops.abi import OvKvLayer
from octavo.ops.interface import KVLayer
from octavo.ops.library import load_library
from octavo.ops.plan import CACHE_TYPES
from octavo.worker.kv_cache import kv_cache_specs, place_layers

LAYERS = [KVLayer(0, 2, 8, 8, 32), KVLayer(1, 2, 8, 8, None), KVLayer(2, 2, 8, 8, 32)]
BYTES = 16 * 2 * (8 + 8) * 2  # block of 16 tokens, 2 heads, K and V, bf16


def test_specs_say_what_each_layer_needs() -> None:
    specs = kv_cache_specs(LAYERS, "bfloat16")
    assert [spec.layer for spec in specs] == [0, 1, 2]
    assert specs[0].sliding_window == 32
    assert specs[1].bytes_per_token() * 16 == BYTES


def test_specs_say_whether_prompts_are_told_apart() -> None:
    for is_apart in (False, True):
        specs = kv_cache_specs(LAYERS, "bfloat16", tells_prompts_apart=is_apart)
        assert [spec.tells_prompts_apart for spec in specs] == [is_apart] * 3


@pytest.mark.parametrize("dtype", ["int8", "fp8_e4m3"])
def test_one_byte_caches_have_a_scale_for_k_and_one_for_v(dtype: str) -> None:
    (spec,) = kv_cache_specs([KVLayer(0, 3, 64, 32)], dtype)
    assert spec.bytes_per_token() == 3 * (64 + 4 + 32 + 4)


@pytest.mark.parametrize("dtype", DTYPE_BYTES)
@pytest.mark.parametrize("layer", [KVLayer(0, 3, 64, 64), KVLayer(0, 1, 80, 48)])
def test_a_token_has_the_bytes_that_the_library_takes(dtype: str, layer: KVLayer) -> None:
    (spec,) = kv_cache_specs([layer], dtype)
    native = OvKvLayer(
        0, 0, layer.num_kv_heads, layer.k_head_dim, layer.v_head_dim, CACHE_TYPES[dtype]
    )
    assert load_library().kv_layer_bytes(native, 32) == 32 * spec.bytes_per_token()


def test_layers_of_a_group_lie_one_after_the_other() -> None:
    config = KVCacheConfig(9, 16, 2 * BYTES, [KVCacheGroup([0, 2], 32), KVCacheGroup([1])])
    pool = place_layers(config, LAYERS, "bfloat16")
    assert [(p.layer.layer, p.group, p.offset_bytes) for p in pool.placements] == [
        (0, 0, 0),
        (2, 0, BYTES),
        (1, 1, 0),
    ]
    assert (pool.num_blocks, pool.block_size, pool.bytes_per_block) == (9, 16, 2 * BYTES)


def test_a_group_larger_than_its_block_is_our_mistake() -> None:
    config = KVCacheConfig(9, 16, BYTES, [KVCacheGroup([0, 2], 32), KVCacheGroup([1])])
    with pytest.raises(AssertionError, match="does not fit"):
        place_layers(config, LAYERS, "bfloat16")


def test_a_layer_that_no_group_holds_is_our_mistake() -> None:
    config = KVCacheConfig(9, 16, 2 * BYTES, [KVCacheGroup([0, 2], 32)])
    with pytest.raises(AssertionError, match="does not cover"):
        place_layers(config, LAYERS, "bfloat16")
