"""Deterministic CBOR of what block hashes are made of.

CBOR (RFC 8949) rather than our own bytes where other programs compute the same hashes; the encoding
is the deterministic one of section 4.2: shortest integers, definite lengths.

Called by: `octavo/core/block_hash.py`. Runs in: EngineCore. Owns: nothing.
Knows nothing of: hashes, floats, maps.
"""

from __future__ import annotations

from collections.abc import Sequence

#: what can be encoded; a sequence becomes an array
Item = int | bytes | str | Sequence["Item"] | None

_UINT, _BYTES, _TEXT, _ARRAY = 0x00, 0x40, 0x60, 0x80  # major types 0, 2, 3 and 4
_NULL = b"\xf6"


def encode(item: Item) -> bytes:
    """`item` as CBOR. Integers must be at least 0 and below 2^64."""
    if item is None:
        return _NULL
    if isinstance(item, int):
        return _head(_UINT, item)
    if isinstance(item, bytes):
        return _head(_BYTES, len(item)) + item
    if isinstance(item, str):
        text = item.encode()
        return _head(_TEXT, len(text)) + text
    return _head(_ARRAY, len(item)) + b"".join(map(encode, item))


def encode_token_ids(token_ids: Sequence[int]) -> bytes:
    """`encode(token_ids)` for ids below 2^32, several times faster."""
    # the head byte and the number are written as one integer
    return _head(_ARRAY, len(token_ids)) + b"".join(
        [
            (0x190000 | token_id).to_bytes(3, "big")
            if 0xFF < token_id <= 0xFFFF
            else _head(_UINT, token_id)
            for token_id in token_ids
        ]
    )


def _head(major: int, number: int) -> bytes:
    """The first byte and its argument: 24 to 27 say that 1, 2, 4 or 8 bytes follow."""
    assert 0 <= number < 2**64, f"{number} cannot be encoded"
    if number < 24:
        return bytes((major | number,))
    for more, size in enumerate((1, 2, 4, 8)):
        if number < 1 << 8 * size:
            return bytes((major | 24 + more,)) + number.to_bytes(size, "big")
    raise AssertionError("unreachable")
