"""A recorded network: buffers and instructions, as `NativeOps` writes them and plans are made from.

Numbers of operations, rows and element types are those of csrc/include/octavo.h; what each operand
of an operation means is said there.

Runs in: workers. Knows nothing of: memory, kernels, requests.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from octavo.ops.interface import KVLayer
from octavo.ops.step import Float32Array


class Rows(IntEnum):
    """How many rows an operation works on in a step."""

    T = 0  # tokens
    R = 1  # requests
    L = 2  # logit rows
    S = 3  # the same, still as the tokens they are: of prompts or generated


class ElementType(IntEnum):
    """Element types of activations."""

    F32 = 0
    BF16 = 30
    A8 = 100  # int8 groups of 32 with scales
    A8R = 102  # int8 groups of 64, rotated; only ever a form of rows of A8, never a buffer's type


class CacheType(IntEnum):
    """Element types of KV caches."""

    F32 = 0
    BF16 = 30
    I8 = 24
    F8_E4M3 = 101


class Op(IntEnum):
    """`enum ov_op`."""

    EMBED = 1
    GATHER = 2
    RMS_NORM = 3
    LAYER_NORM = 4
    PREPARE = 5
    LINEAR = 6
    ADD = 7
    MUL = 8
    SCALE = 9
    ROPE = 10
    KV_WRITE = 11
    ROPE_KV = 12
    ATTENTION = 13
    ACT = 14
    ACT_MUL = 15
    LINEAR_ACT_MUL = 16
    SOFT_CAP = 17
    LM_HEAD = 18
    PENALIZE = 19
    MASK = 20
    LOGITS_HOOK = 21
    LOGPROBS = 22
    SAMPLE = 23


#: operations that overwrite inputs -> which of them
IN_PLACE: dict[Op, tuple[int, ...]] = {
    Op.ROPE: (0,),
    Op.ROPE_KV: (0, 1),
    Op.SOFT_CAP: (0,),
    Op.PENALIZE: (0,),
    Op.MASK: (0,),
    Op.LOGITS_HOOK: (0,),
}


class Buffer(msgspec.Struct, frozen=True):
    """A place for rows x cols values. `is_chunked`: it holds one chunk of logit rows."""

    rows: Rows
    cols: int
    dtype: ElementType
    is_chunked: bool = False


class Operand(msgspec.Struct, frozen=True):
    """Columns of a buffer from `col` on."""

    buffer: int
    col: int = 0


class Instruction(msgspec.Struct):
    """One operation. Lists are as long as needed; `i` and `f` are its constants."""

    op: Op
    rows: Rows
    ins: list[Operand | None] = []
    outs: list[Operand] = []
    weights: list[int] = []
    vectors: list[int | None] = []
    i: list[int] = []
    f: list[float] = []

    def reads(self) -> set[int]:
        """Buffers it reads."""
        return {operand.buffer for operand in self.ins if operand is not None}

    def writes(self) -> set[int]:
        """Buffers it writes, those it overwrites included."""
        written = {operand.buffer for operand in self.outs}
        for index in IN_PLACE.get(self.op, ()):
            operand = self.ins[index]
            assert operand is not None
            written.add(operand.buffer)
        return written


class Program(msgspec.Struct):
    """Two segments over one set of buffers. Weights are indices into the backend's list."""

    buffers: list[Buffer] = []
    forward: list[Instruction] = []
    sample: list[Instruction] = []
    vectors: list[Float32Array] = []
    kv_layers: list[KVLayer] = []

    def add_buffer(self, buffer: Buffer) -> int:
        """Index of a new buffer."""
        self.buffers.append(buffer)
        return len(self.buffers) - 1
