"""Size and shape of the KV cache by flags and environment."""

from __future__ import annotations

import pytest

from octavo.config.rules.kv_cache import (
    GIB,
    check_block_size,
    check_utilization,
    choose_cache_bytes,
    choose_hash_algorithm,
)
from octavo.errors import ConfigError


@pytest.mark.parametrize("size", [16, 32, 128])
def test_multiples_of_16_are_block_sizes(size: int) -> None:
    assert check_block_size(size) == size


def test_other_block_sizes_are_refused_with_the_next_ones() -> None:
    with pytest.raises(ConfigError, match="multiple of 16, got 40; try 32 or 48"):
        check_block_size(40)
    with pytest.raises(ConfigError, match="got 8; try 16 or 32"):
        check_block_size(8)


def test_the_variable_counts_in_gib() -> None:
    value, reason = choose_cache_bytes(None, 1.5)
    assert value == GIB * 3 // 2
    assert "CPU_KVCACHE_SPACE" in reason


def test_the_flag_comes_before_the_variable() -> None:
    value, reason = choose_cache_bytes(1000, 4)
    assert value == 1000
    assert "--kv-cache-memory-bytes comes before" in reason
    assert choose_cache_bytes(GIB, 1) == (GIB, "")


@pytest.mark.parametrize("unset", [None, 0])
def test_without_the_variable_the_flag_alone_counts(unset: float | None) -> None:
    assert choose_cache_bytes(None, unset) == (None, "")
    assert choose_cache_bytes(5, unset) == (5, "")


def test_the_share_is_above_zero() -> None:
    assert check_utilization(None) is None
    assert check_utilization(0.9) == 0.9
    with pytest.raises(ConfigError, match="--gpu-memory-utilization must be above 0"):
        check_utilization(0.0)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("sha256", "sha256"),
        ("sha256_cbor", "sha256_cbor"),
        ("xxhash", "sha256"),
        ("xxhash_cbor", "sha256_cbor"),
    ],
)
def test_hashes_are_sha256_and_a_replaced_one_is_named(given: str, used: str) -> None:
    choice = choose_hash_algorithm(given)
    assert choice.value == used
    assert (given in choice.reason) == (given != used)
