"""Names of full KV blocks: a chain of hashes over everything a block's content depends on.

Two blocks with the same hash hold the same keys and values, because the hash covers the block's
tokens, all tokens before it (through the parent's hash), and the request's `PrefixScope`: a
tenant's `cache_salt`, an adapter. Where generated tokens are computed otherwise than the same
tokens in a prompt, the block with a request's first generated token also says how many tokens of
the prompt stand before it in the block; blocks after it say so through their parent.

Source of the idea: vLLM's automatic prefix caching; cf. SGLang's radix attention (Zheng et al.,
2024). SHA-256 because a collision would answer one user with another one's context.

Runs in: EngineCore. Owns: the hash's definition. Knows nothing of: blocks in use, requests.
"""

from __future__ import annotations

import sys
from array import array
from hashlib import sha256
from typing import NamedTuple, Protocol

from octavo.core import cbor

assert array("I").itemsize == 4, "token ids are hashed as 32-bit words"


class PrefixScope(NamedTuple):
    """What besides tokens the content of a request's blocks depends on. Requests share blocks only
    if their scopes are equal.

    `adapter` is the name and the path of a LoRA adapter: a name may come to mean another one.
    """

    cache_salt: str | None = None
    adapter: tuple[str, str] | None = None


class BlockHasher(Protocol):
    """One definition of the hash."""

    def hash_blocks(
        self,
        scope: PrefixScope,
        parent: bytes | None,
        token_ids: list[int],
        block_size: int,
        first_generated: int | None = None,
    ) -> list[bytes]:
        """Hashes of the full blocks of `token_ids`, 32 bytes each; an incomplete last block has
        none.

        Args:
            scope: of the request.
            parent: hash of the block before; None if `token_ids` begins the request.
            token_ids: tokens of a request from the beginning of a block on.
            block_size: tokens per block.
            first_generated: place in `token_ids` of the first token that was generated, wherever it
                is: beyond them all are of the prompt, below 0 it is in a block before. None: it
                makes no difference.
        """


class Sha256Hasher:
    """SHA-256 over the parent's hash and the ids as 32-bit words; a seed made of the scope is the
    first parent. The fastest one; its values are our own."""

    def hash_blocks(
        self,
        scope: PrefixScope,
        parent: bytes | None,
        token_ids: list[int],
        block_size: int,
        first_generated: int | None = None,
    ) -> list[bytes]:
        """See `BlockHasher`. The number of prompt tokens follows the ids as one more word."""
        if parent is None:
            parent = _PLAIN_SEED if scope == _PLAIN_SCOPE else _seed(scope)
        size = len(token_ids) // block_size * block_size
        tokens = array("I", token_ids[:size]).tobytes()
        step = 4 * block_size
        mixed, num_prompt = _where(first_generated, block_size)
        hashes: list[bytes] = []
        for offset in range(0, len(tokens), step):
            content = tokens[offset : offset + step]
            if len(hashes) == mixed:
                content += array("I", [num_prompt]).tobytes()
            parent = sha256(parent + content).digest()
            hashes.append(parent)
        return hashes


class Sha256CborHasher:
    """vLLM's `sha256_cbor`, bit for bit: SHA-256 over the CBOR of (parent, token ids, extra keys).

    Any program can compute it: extra keys are `("lora", name, path)` in every block and
    `("cache_salt", salt)` in the first, or null; the first parent is the hash of the seed. vLLM
    has no `("generated", n)`: n tokens of the block are of the prompt, those after them are not.

    Args:
        seed: `PYTHONHASHSEED` if that is set, as in vLLM; else vLLM's constant.
    """

    def __init__(self, seed: str) -> None:
        self._first_parent = sha256(cbor.encode(seed)).digest()

    def hash_blocks(
        self,
        scope: PrefixScope,
        parent: bytes | None,
        token_ids: list[int],
        block_size: int,
        first_generated: int | None = None,
    ) -> list[bytes]:
        """See `BlockHasher`."""
        adapter = () if scope.adapter is None else (("lora", *scope.adapter),)
        salt = () if scope.cache_salt is None else (("cache_salt", scope.cache_salt),)
        extra_keys = cbor.encode(adapter or None)
        mixed, num_prompt = _where(first_generated, block_size)
        hashes: list[bytes] = []
        for end in range(block_size, len(token_ids) + 1, block_size):
            tokens = cbor.encode_token_ids(token_ids[end - block_size : end])
            keys = extra_keys
            if parent is None or len(hashes) == mixed:
                salted = salt if parent is None else ()
                kinds = (("generated", num_prompt),) if len(hashes) == mixed else ()
                keys = cbor.encode((*adapter, *salted, *kinds) or None)
            parent = _hash_triple(parent or self._first_parent, tokens, keys)
            hashes.append(parent)
        return hashes


def make_block_hasher(algorithm: str, seed: str) -> BlockHasher:
    """The hash that `--prefix-caching-hash-algo` names: sha256 or sha256_cbor."""
    if algorithm == "sha256_cbor":
        return Sha256CborHasher(seed)
    assert algorithm == "sha256", algorithm
    return Sha256Hasher()


def group_key(block_hash: bytes, group_id: int) -> bytes:
    """Key of a block in the pool's index: groups hold different layers of the same tokens."""
    return block_hash + _GROUP_SUFFIX[group_id]


def split_key(key: bytes) -> tuple[bytes, int]:
    """The hash and the group of a key."""
    return key[:-1], key[-1]


def _where(first_generated: int | None, block_size: int) -> tuple[int, int]:
    """The block that a request's first generated token is in (-1: none of these, or it does not
    matter), and how many tokens are before it in the block."""
    if first_generated is None or first_generated < 0:
        return -1, 0
    return divmod(first_generated, block_size)


def _seed(scope: PrefixScope) -> bytes:
    return sha256(cbor.encode(("octavo kv", sys.byteorder, *scope))).digest()


def _hash_triple(parent: bytes, tokens: bytes, extra_keys: bytes) -> bytes:
    # an array of three: a string of 32 bytes, what is encoded already
    return sha256(b"\x83\x58\x20" + parent + tokens + extra_keys).digest()


_PLAIN_SCOPE = PrefixScope()
_PLAIN_SEED = _seed(_PLAIN_SCOPE)
_GROUP_SUFFIX = [bytes([group_id]) for group_id in range(256)]
