"""Philox4x32-10: the counter-based random numbers of the sampler.

The n-th draw of a request is a function of (seed, n) alone: no state, so a row's result does not
depend on its batch, on preemption or on the backend. The native sampler has the same function.

Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
Runs in: workers, tests. Knows nothing of: requests.
"""

from __future__ import annotations

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, ...]:
    """Four 32-bit words from a 128-bit counter and a 64-bit key, ten rounds."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        product0, product1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (product1 >> 32) ^ c1 ^ k0,
            product1 & _MASK,
            (product0 >> 32) ^ c3 ^ k1,
            product0 & _MASK,
        )
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, output_index: int) -> float:
    """The draw of one token: a multiple of 2**-53 in [0, 1)."""
    counter = (output_index & _MASK, output_index >> 32 & _MASK, 0, 0)
    words = philox4x32(counter, (seed & _MASK, seed >> 32 & _MASK))
    return ((words[0] << 32 | words[1]) >> 11) * 2.0**-53
