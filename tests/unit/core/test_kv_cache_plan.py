from __future__ import annotations

import pytest

from octavo.config.engine import CacheConfig
from octavo.core.kv_cache_plan import KVCachePlan, group_layers, plan_kv_cache
from octavo.errors import ConfigError, StartupError
from octavo.messages.kv_cache import KVCacheSpec, MemoryReport

GIB = 1 << 30
#: 30 layers of 3 heads of 64 in bf16, as SmolLM2-135M: 23,040 bytes per token
SMOLLM2 = [KVCacheSpec(layer, 3, 64, 64, "bfloat16") for layer in range(30)]


def plan(
    *,
    specs: list[KVCacheSpec] = SMOLLM2,
    available: int = 16 * GIB,
    activation: int = 0,
    window: int = 8192,
    given: bool = False,
    **cache: object,
) -> KVCachePlan:
    return plan_kv_cache(
        specs,
        MemoryReport(available, 0, activation),
        CacheConfig(**cache),  # type: ignore[arg-type]
        max_model_len=window,
        max_model_len_is_given=given,
        max_num_batched_tokens=512,
    )


def test_by_default_there_is_room_for_65536_tokens() -> None:
    made = plan()
    assert made.size_tokens == 65_536
    assert made.bytes_per_token == 23_040
    assert made.config.num_blocks == 4097
    assert made.max_concurrency == 8.0
    assert made.warnings == []


def test_a_longer_window_is_what_there_is_room_for() -> None:
    assert plan(window=131_072).size_tokens == 131_072


def test_by_default_a_quarter_of_what_is_available_is_the_limit() -> None:
    made = plan(available=2 * GIB)
    assert made.config.num_blocks == GIB // 2 // made.config.bytes_per_block


def test_memory_for_activations_is_not_available() -> None:
    assert plan(available=3 * GIB, activation=GIB) == plan(available=2 * GIB)


def test_a_step_that_needs_all_memory_is_named() -> None:
    with pytest.raises(StartupError, match=r"needs 3\.00 GiB and 2\.00 GiB are available"):
        plan(available=2 * GIB, activation=3 * GIB)


def test_more_blocks_than_memory_holds_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"--num-gpu-blocks-override 1000000 \(343.32 GiB\)"):
        plan(num_gpu_blocks_override=1_000_000)


def test_one_window_may_take_half() -> None:
    made = plan(available=GIB, window=16_384)
    assert made.max_model_len == 16_384
    assert made.size_tokens == 16_384


def test_a_window_that_was_not_given_is_lowered_with_a_warning() -> None:
    made = plan(available=GIB, window=131_072)
    assert made.max_model_len < 131_072
    assert made.max_model_len == made.size_tokens
    assert made.config.num_blocks * made.config.bytes_per_block <= GIB // 2
    (warning,) = made.warnings
    assert f"from 131072 to {made.max_model_len} tokens" in warning


def test_a_given_window_that_does_not_fit_fails_with_the_numbers() -> None:
    with pytest.raises(ConfigError) as caught:
        plan(available=GIB, window=131_072, given=True)
    for part in ("131072", "2.81 GiB", "0.50 GiB", "maximum model length is 23280"):
        assert part in caught.value.message


def test_a_share_of_memory_is_taken_as_given() -> None:
    made = plan(available=GIB, gpu_memory_utilization=0.9)
    assert made.config.num_blocks == int(GIB * 0.9) // made.config.bytes_per_block


def test_bytes_are_taken_as_given() -> None:
    made = plan(available=GIB, kv_cache_memory_bytes=GIB // 2, window=16_384)
    assert made.config.num_blocks == GIB // 2 // made.config.bytes_per_block


def test_bytes_that_are_not_there_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"more than the 1\.00 GiB of memory that are available"):
        plan(available=GIB, kv_cache_memory_bytes=2 * GIB)


def test_a_number_of_blocks_is_taken_as_given() -> None:
    made = plan(num_gpu_blocks_override=9)
    assert made.config.num_blocks == 9
    assert made.max_model_len == 128
    assert made.warnings


def test_one_block_is_too_few() -> None:
    with pytest.raises(ConfigError, match="at least 2"):
        plan(num_gpu_blocks_override=1)


def test_blocks_for_some_layers_only_are_too_few() -> None:
    specs = [KVCacheSpec(0, 1, 8, 8, "float32"), KVCacheSpec(1, 1, 8, 8, "float32", 32)]
    with pytest.raises(StartupError, match="not even one token"):
        plan(specs=specs, num_gpu_blocks_override=2)


def test_too_little_memory_for_any_block_is_said() -> None:
    with pytest.raises(StartupError, match="Too little memory for a KV cache"):
        plan(available=100_000)


def test_the_log_lines_are_those_vllm_users_grep_for() -> None:
    lines = plan().log_lines("cpu")
    assert "CPU KV cache size: 65,536 tokens" in lines
    assert "Maximum concurrency for 8,192 tokens per request: 8.00x" in lines
    assert "GPU KV cache size: 65,536 tokens" in plan().log_lines("cuda")
    assert "1.41 GiB" in lines[0]
    assert "23,040 bytes/token" in lines[0]


def test_layers_of_one_kind_are_one_group() -> None:
    (group,) = group_layers(SMOLLM2)
    assert group.layers == list(range(30))


def test_gemma3_270m_has_six_groups_of_three() -> None:
    specs = [
        KVCacheSpec(n, 1, 256, 256, "bfloat16", None if n % 6 == 5 else 512) for n in range(18)
    ]
    groups = group_layers(specs)
    assert sorted(len(group.layers) for group in groups) == [3] * 6
    assert sum(group.sliding_window is None for group in groups) == 1
    assert sorted(n for group in groups for n in group.layers) == list(range(18))
    made = plan(specs=specs, window=32_768)
    assert made.config.bytes_per_block == 16 * 2 * 3 * 1 * 256 * 2
    # sliding layers need their window only, so more tokens fit than bytes per token say
    bytes_in_pool = made.config.num_blocks * made.config.bytes_per_block
    assert made.size_tokens > bytes_in_pool // made.bytes_per_token


def test_nearly_equal_kinds_are_padded_to_two_groups() -> None:
    specs = [KVCacheSpec(n, 1, 8, 8, "float32", 32 if n < 10 else None) for n in range(19)]
    assert [len(group.layers) for group in group_layers(specs)] == [10, 9]


def test_a_block_has_room_for_the_largest_group() -> None:
    specs = [KVCacheSpec(0, 1, 8, 8, "float32"), KVCacheSpec(1, 2, 8, 8, "float32", 32)]
    assert plan(specs=specs).config.bytes_per_block == 16 * 2 * 2 * 8 * 4
