from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.core import cbor
from octavo.core.block_hash import (
    BlockHasher,
    PrefixScope,
    Sha256CborHasher,
    Sha256Hasher,
    group_key,
    make_block_hasher,
    split_key,
)

TOKENS = st.lists(st.integers(0, 300_000), max_size=40)
PLAIN = PrefixScope()
ALGORITHMS = pytest.mark.parametrize("hasher", [Sha256Hasher(), Sha256CborHasher("seed")])

# cbor2 6.3.0: sha256(cbor2.dumps((parent, tokens, extra_keys), canonical=True)), the chain that
# vLLM 0.32 makes of these tokens in blocks of 3; first parent: the hash of the seed alone
EDGES = [0, 23, 24, 255, 256, 65535, 65536, 262143, 2**32 - 1]
VLLM_CHAINS = [
    (
        "vllm-none-hash",
        PLAIN,
        (
            "cadd327fdd5aa76a8f153e6416daac204d6518953021ee6751863f0f7ba5ffb3"
            "368c873d81964d4e778a8c54ca62b75f9241043176317307ca0043e54a9cd059"
            "1c050d37d3a7a0f6792b475c9fc286f00b8ec7afd44617b28911793cfc0ea92c"
        ),
    ),
    (
        "42",
        PLAIN,
        (
            "9c4daf6a0dd46c86ebb4c431dda361cc3d380e68fb43e29c7795f2e1b1f36cc8"
            "2f643ce6b53893c85808af717a11aa5a31cdc169c1e32d64b3f377c52b90a413"
            "6b6d00f0e7104671766e715a1d1cb9e5bf336a4c34b9f1bd70cc19915e8e520c"
        ),
    ),
    (
        "vllm-none-hash",
        PrefixScope("tenant \u00e9"),
        (
            "64d0ec8bfed5cb76bb0743e7ea888173cda0158a9859635fb3b76b3bd6db0036"
            "e10198f0a25bc67e7bf6c1282e78d6168b250cccd519348b150c0ac3e5cbae27"
            "7f441df53cda321508dd4f093f72176fe51403aedef9e08a636f3e4e2ff848b6"
        ),
    ),
    (
        "vllm-none-hash",
        PrefixScope("s", ("a", "/p")),
        (
            "c9d102cc22ae639c723e704e7b3cf984954ece39d446e63d9788c6170e95ae72"
            "6620c268bb361efb5830ab712d9aa0970a48cd1317bf0258c0d76fe7206fb5a1"
            "5e7d19e255842ddb061c354b61a88af3974c20f711681e629e3d407b6d3c3003"
        ),
    ),
]


@pytest.mark.parametrize(("seed", "scope", "chain"), VLLM_CHAINS)
def test_sha256_cbor_gives_the_values_that_vllm_gives(
    seed: str, scope: PrefixScope, chain: str
) -> None:
    hasher = make_block_hasher("sha256_cbor", seed)
    assert b"".join(hasher.hash_blocks(scope, None, EDGES, 3)).hex() == chain


@ALGORITHMS
def test_only_full_blocks_have_a_hash(hasher: BlockHasher) -> None:
    seven = hasher.hash_blocks(PLAIN, None, list(range(7)), 4)
    assert seven == hasher.hash_blocks(PLAIN, None, list(range(4)), 4)
    assert len(seven) == 1
    assert hasher.hash_blocks(PLAIN, None, [1, 2, 3], 4) == []


@ALGORITHMS
def test_a_block_depends_on_every_token_before_it(hasher: BlockHasher) -> None:
    first = hasher.hash_blocks(PLAIN, None, [1, 2, 3, 4], 2)
    second = hasher.hash_blocks(PLAIN, None, [9, 2, 3, 4], 2)
    assert first[1] != second[1]


@ALGORITHMS
def test_salts_and_adapters_change_every_block(hasher: BlockHasher) -> None:
    scopes = [
        PLAIN,
        PrefixScope("a"),
        PrefixScope("b"),
        PrefixScope(None, ("a", "/x")),
        PrefixScope(None, ("a", "/y")),
        PrefixScope("a", ("a", "/x")),
    ]
    chains = [hasher.hash_blocks(scope, None, [1, 2, 3, 4], 2) for scope in scopes]
    assert len({block for chain in chains for block in chain}) == 2 * len(scopes)


def test_groups_have_keys_of_their_own_that_can_be_taken_apart() -> None:
    (block,) = Sha256Hasher().hash_blocks(PLAIN, None, [1], 1)
    assert group_key(block, 0) != group_key(block, 1)
    assert split_key(group_key(block, 255)) == (block, 255)


@ALGORITHMS
@given(tokens=TOKENS, more=TOKENS, block_size=st.integers(1, 8))
def test_a_chain_may_be_continued(
    hasher: BlockHasher, tokens: list[int], more: list[int], block_size: int
) -> None:
    scope = PrefixScope("salt", ("adapter", "/path"))
    whole = hasher.hash_blocks(scope, None, tokens + more, block_size)
    begun = hasher.hash_blocks(scope, None, tokens, block_size)
    rest = (tokens + more)[len(begun) * block_size :]
    parent = begun[-1] if begun else None
    assert begun + hasher.hash_blocks(scope, parent, rest, block_size) == whole


@ALGORITHMS
@given(
    tokens=TOKENS,
    num_begun=st.integers(0, 40),
    block_size=st.integers(1, 8),
    first_generated=st.integers(0, 50),
)
def test_a_chain_of_both_kinds_may_be_continued_anywhere(
    hasher: BlockHasher, tokens: list[int], num_begun: int, block_size: int, first_generated: int
) -> None:
    scope = PrefixScope("salt", ("adapter", "/path"))
    whole = hasher.hash_blocks(scope, None, tokens, block_size, first_generated)
    begun = hasher.hash_blocks(scope, None, tokens[:num_begun], block_size, first_generated)
    parent, size = begun[-1] if begun else None, len(begun) * block_size
    rest = hasher.hash_blocks(scope, parent, tokens[size:], block_size, first_generated - size)
    assert begun + rest == whole


@ALGORITHMS
@given(
    tokens=TOKENS,
    block_size=st.integers(1, 8),
    a=st.integers(0, 50),
    b=st.integers(0, 50),
)
def test_equal_hashes_mean_equal_kinds(
    hasher: BlockHasher, tokens: list[int], block_size: int, a: int, b: int
) -> None:
    """`a` and `b` tokens of the prompt; if it makes no difference, all are as in a prompt."""
    chains = [hasher.hash_blocks(PLAIN, None, tokens, block_size, first) for first in (a, b, None)]
    for index, (of_a, of_b, plain) in enumerate(zip(*chains, strict=True)):
        end = (index + 1) * block_size
        assert (of_a == of_b) == (min(a, end) == min(b, end))
        assert (of_a == plain) == (a >= end)


def test_what_any_program_can_compute_says_where_generated_tokens_begin() -> None:
    hasher, scope = Sha256CborHasher("seed"), PrefixScope("s", ("a", "/x"))
    adapter, salt = ("lora", "a", "/x"), ("cache_salt", "s")
    seed = sha256(cbor.encode("seed")).digest()
    first = sha256(cbor.encode((seed, [7, 8], (adapter, salt, ("generated", 1))))).digest()
    second = sha256(cbor.encode((first, [9, 9], (adapter,)))).digest()
    assert hasher.hash_blocks(scope, None, [7, 8, 9, 9], 2, 1) == [first, second]
    third = sha256(cbor.encode((second, [5, 6], (adapter, ("generated", 0))))).digest()
    assert hasher.hash_blocks(scope, second, [5, 6], 2, 0) == [third]


@ALGORITHMS
@given(a=TOKENS, b=TOKENS, block_size=st.integers(1, 8))
def test_equal_hashes_mean_equal_prefixes(
    hasher: BlockHasher, a: list[int], b: list[int], block_size: int
) -> None:
    chains = [hasher.hash_blocks(PLAIN, None, tokens, block_size) for tokens in (a, b)]
    for index, (x, y) in enumerate(zip(*chains, strict=False)):
        end = (index + 1) * block_size
        assert (x == y) == (a[:end] == b[:end])
