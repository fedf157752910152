"""Names of full KV blocks: a chain of hashes over everything a block's content depends on.

Two blocks with the same hash hold the same keys and values, because the hash covers the block's
tokens, all tokens before it (through the parent's hash), and what else the model was told (the
chain's seed: a tenant's `cache_salt`; an adapter when there are any).

Source of the idea: vLLM's automatic prefix caching; cf. SGLang's radix attention (Zheng et al.,
2024). sha256 because a collision would answer one user with another one's context.

Runs in: EngineCore. Owns: the hash's definition. Knows nothing of: blocks in use, requests.
"""

from __future__ import annotations

import sys
from array import array
from hashlib import sha256

assert array("I").itemsize == 4, "token ids are hashed as 32-bit words"


def chain_seed(cache_salt: str | None) -> bytes:
    """The parent hash of a first block. Requests share blocks only if their seeds are equal."""
    if cache_salt is None:
        return _PLAIN_SEED
    return sha256(b"octavo kv salt\0" + cache_salt.encode("utf-8", "surrogatepass")).digest()


def hash_blocks(
    parent: bytes, token_ids: list[int], block_size: int, start_block: int = 0
) -> list[bytes]:
    """Hashes of the full blocks of `token_ids` from block `start_block` on.

    Args:
        parent: hash of block `start_block - 1`, or the seed if `start_block` is 0.
        token_ids: all tokens of a request, from its first.

    Returns:
        One 32-byte hash per full block; an incomplete last block has none.
    """
    num_blocks = len(token_ids) // block_size
    tokens = array("I", token_ids[start_block * block_size : num_blocks * block_size]).tobytes()
    step = 4 * block_size
    hashes = []
    for offset in range(0, len(tokens), step):
        parent = sha256(parent + tokens[offset : offset + step]).digest()
        hashes.append(parent)
    return hashes


def group_key(block_hash: bytes, group_id: int) -> bytes:
    """Key of a block in the pool's index: groups hold different layers of the same tokens."""
    return block_hash + _GROUP_SUFFIX[group_id]


_PLAIN_SEED = sha256(b"octavo kv " + sys.byteorder.encode()).digest()
_GROUP_SUFFIX = [bytes([group_id]) for group_id in range(256)]
