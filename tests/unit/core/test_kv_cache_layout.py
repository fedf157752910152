from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo.core.kv_cache_layout import KVCacheLayout


def test_full_attention_needs_a_block_for_every_token_in_every_group() -> None:
    layout = KVCacheLayout(4, (None, None), 100)
    assert [layout.blocks_for(n) for n in (0, 1, 4, 5)] == [0, 2, 2, 4]


def test_with_only_sliding_windows_a_request_may_be_as_long_as_the_limit() -> None:
    layout = KVCacheLayout(2, (4,), 4)
    assert layout.longest(5, 1000) == 1000
    assert layout.longest(4, 1000) == 8


@given(
    num_blocks=st.integers(1, 60),
    windows=st.lists(st.none() | st.integers(1, 30), min_size=1, max_size=3),
    chunk=st.integers(1, 30),
    block_size=st.integers(1, 9),
)
def test_the_longest_request_fits_and_a_longer_one_does_not(
    num_blocks: int, windows: list[int | None], chunk: int, block_size: int
) -> None:
    layout = KVCacheLayout(block_size, tuple(windows), chunk)
    longest = layout.longest(num_blocks, 500)
    assert layout.blocks_for(longest) <= num_blocks
    assert longest == 500 or layout.blocks_for(longest + 1) > num_blocks


@given(
    num_tokens=st.integers(1, 200),
    window=st.integers(1, 60),
    chunk=st.integers(1, 60),
    block_size=st.integers(1, 17),
)
def test_the_bound_for_sliding_groups_holds_at_every_chunk(
    num_tokens: int, window: int, chunk: int, block_size: int
) -> None:
    most = 0
    for computed in range(0, num_tokens, chunk):
        first_visible = max(0, computed - window + 1) // block_size
        end = -(-min(computed + chunk, num_tokens) // block_size)
        most = max(most, end - first_visible)
    assert most <= KVCacheLayout(block_size, (window,), chunk).blocks_for(num_tokens)
