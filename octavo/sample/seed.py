"""Which random numbers a request draws.

Draw n of a request is Philox(seed, n), n being the tokens generated before it. A given seed is used
as it is; a request without one gets a seed from the engine's seed and its own id, so that it
continues the same sequence after preemption.

Runs in: workers. Knows nothing of: tensors.
"""

from __future__ import annotations

from hashlib import blake2b

_MASK = 2**64 - 1


def request_seed(given: int | None, engine_seed: int, request_id: str) -> int:
    """The 64-bit Philox key of a request. Negative seeds count modulo 2**64."""
    if given is not None:
        return given & _MASK
    key = (engine_seed & _MASK).to_bytes(8, "little")
    digest = blake2b(request_id.encode(), digest_size=8, key=key).digest()
    return int.from_bytes(digest, "little")
