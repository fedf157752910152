"""Where the time of steps went, by kind of operation.

Written by: `octavo/ops/roofline.py`. Read by: `octavo/cli/profile_table.py`.
"""

from __future__ import annotations

import msgspec


class OpTime(msgspec.Struct, frozen=True):
    """All instructions of one kind over all profiled steps.

    Attributes:
        op: its name in `octavo/ops/program.py`.
        calls: instructions run.
        seconds: their time.
        bytes: weights and caches they read, each counted once per call; activations are not
            counted, since they stay in the processor's caches.
        operations: of their products, by arithmetic ("int8", "bf16", "f32"); a multiply-add is two.
    """

    op: str
    calls: int
    seconds: float
    bytes: int
    operations: dict[str, int]


class Profile(msgspec.Struct, frozen=True):
    """What a worker measured.

    Attributes:
        ops: most time first.
        num_steps: steps that were profiled.
        limits: what all threads reach together per second: bytes under "read", operations under
            each arithmetic.
    """

    ops: list[OpTime]
    num_steps: int
    limits: dict[str, float]
