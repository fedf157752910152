"""Bit masks over the vocabulary."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from octavo.sample.token_mask import allowed_token_mask, num_mask_words


@given(st.integers(1, 200), st.data())
def test_exactly_the_allowed_bits_are_set(vocab_size: int, data: st.DataObject) -> None:
    allowed = data.draw(st.sets(st.integers(0, vocab_size - 1)))
    mask = allowed_token_mask(allowed, vocab_size)
    assert mask.shape == (num_mask_words(vocab_size),)
    assert mask.dtype == np.uint32
    assert {i for i in range(len(mask) * 32) if mask[i // 32] >> (i % 32) & 1} == allowed
