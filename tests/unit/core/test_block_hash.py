from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo.core.block_hash import chain_seed, group_key, hash_blocks

TOKENS = st.lists(st.integers(0, 300_000), max_size=40)


def test_only_full_blocks_have_a_hash() -> None:
    seed = chain_seed(None)
    assert hash_blocks(seed, list(range(7)), 4) == hash_blocks(seed, list(range(4)), 4)
    assert hash_blocks(seed, [1, 2, 3], 4) == []


def test_a_block_depends_on_every_token_before_it() -> None:
    seed = chain_seed(None)
    first = hash_blocks(seed, [1, 2, 3, 4], 2)
    second = hash_blocks(seed, [9, 2, 3, 4], 2)
    assert first[1] != second[1]


def test_a_salt_changes_every_block_and_an_empty_salt_is_a_salt() -> None:
    tokens = [1, 2, 3, 4]
    chains = [hash_blocks(chain_seed(salt), tokens, 2) for salt in (None, "", "a", "b")]
    assert len({block for chain in chains for block in chain}) == 8


def test_groups_have_keys_of_their_own() -> None:
    (block,) = hash_blocks(chain_seed(None), [1], 1)
    assert group_key(block, 0) != group_key(block, 1)


@given(tokens=TOKENS, more=TOKENS, block_size=st.integers(1, 8))
def test_a_chain_may_be_continued(tokens: list[int], more: list[int], block_size: int) -> None:
    seed = chain_seed("salt")
    whole = hash_blocks(seed, tokens + more, block_size)
    begun = hash_blocks(seed, tokens, block_size)
    rest = (tokens + more)[len(begun) * block_size :]
    parent = begun[-1] if begun else seed
    assert begun + hash_blocks(parent, rest, block_size) == whole


@given(a=TOKENS, b=TOKENS, block_size=st.integers(1, 8))
def test_equal_hashes_mean_equal_prefixes(a: list[int], b: list[int], block_size: int) -> None:
    seed = chain_seed(None)
    for index, (x, y) in enumerate(
        zip(hash_blocks(seed, a, block_size), hash_blocks(seed, b, block_size), strict=False)
    ):
        end = (index + 1) * block_size
        assert (x == y) == (a[:end] == b[:end])
