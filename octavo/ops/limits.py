"""What a profile is compared with: how fast the threads compute, and read the weights.

Runs in: workers on CPU. Knows nothing of: plans, steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.ops.library import Library, NativeWeight, ThreadPool

#: arithmetic -> `enum ov_limit`
_ARITHMETIC = {"f32": 0, "bf16": 1, "int8": 2}
#: that are read to find out how fast the weights can be: a second or two
_PROBED_BYTES = 32 << 30


def measure_limits(
    library: Library, pool: ThreadPool, weights: Sequence[NativeWeight]
) -> dict[str, float]:
    """Operations per second of each arithmetic; bytes per second as `read`.

    The latter where the weights lie, as they are most of what a step reads, and memory differs by
    where the host has placed it.
    """
    limits = {name: library.probe(pool, limit) for name, limit in _ARITHMETIC.items()}
    stored_bytes = sum(weight.stored_bytes for weight in weights)
    num_passes = min(max(_PROBED_BYTES // max(stored_bytes, 1), 3), 40)
    limits["read"] = library.probe_weights(pool, weights, num_passes)
    return limits
