"""Bit masks over the vocabulary: bit set means allowed, 32 ids per word, lowest id in bit 0.

Runs in: workers. Knows nothing of: grammars, requests.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from octavo.ops.step import UInt32Array


def num_mask_words(vocab_size: int) -> int:
    """Words of one mask."""
    return -(-vocab_size // 32)


def allowed_token_mask(allowed_token_ids: Iterable[int], vocab_size: int) -> UInt32Array:
    """[num_mask_words] with the bits of `allowed_token_ids` set."""
    bits = np.zeros(num_mask_words(vocab_size) * 32, np.uint8)
    bits[np.fromiter(allowed_token_ids, np.int64)] = 1
    return np.packbits(bits, bitorder="little").view(np.uint32)
