"""Peephole fusion of recorded instructions: fewer passes over activations, same arithmetic.

Each fusion is a function of neighbouring instructions that returns the one that replaces them, or
None. All are about the work between matrix products: an activation is normed, rotated or gated and
then prepared for the next product in one pass, and products that share an input are one.

Runs in: workers, once. Knows nothing of: memory, kernels, model classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from octavo.ops.program import ElementType, Instruction, Op, Program

#: buffer -> number of instructions that read it
Readers = Counter[int]
MAX_LINEAR_SEGMENTS = 4  # outputs of one LINEAR instruction
#: operations that can prepare their output for a linear -> which constant holds its type
_PREPARING = {Op.RMS_NORM: 2, Op.LAYER_NORM: 2, Op.ACT_MUL: 2, Op.ATTENTION: 3}


class Fusion(msgspec.Struct, frozen=True):
    """A rule over `width` neighbours."""

    width: int
    fuse: Callable[[Sequence[Instruction], Readers], Instruction | None]


def fuse_program(program: Program) -> Program:
    """The same network with every fusion applied, in order."""
    forward, sample = program.forward, program.sample
    for fusion in FUSIONS:
        readers = Counter(buffer for item in (*forward, *sample) for buffer in item.reads())
        forward = _apply(fusion, forward, readers)
        sample = _apply(fusion, sample, readers)
    return msgspec.structs.replace(program, forward=forward, sample=sample)


def forget_logits(program: Program) -> Program:
    """The same network, in which a head need not write logits that nobody reads: those of chunks
    of greedy rows, where the native library knows the largest logit without them."""
    return msgspec.structs.replace(
        program,
        sample=[
            msgspec.structs.replace(item, i=[0, 1]) if item.op == Op.LM_HEAD else item
            for item in program.sample
        ],
    )


def _apply(
    fusion: Fusion, instructions: Sequence[Instruction], readers: Readers
) -> list[Instruction]:
    """One pass: a fused instruction may be fused again with what follows."""
    result: list[Instruction] = []
    for item in instructions:
        result.append(item)
        while len(result) >= fusion.width:
            fused = fusion.fuse(result[-fusion.width :], readers)
            if fused is None:
                break
            result[-fusion.width :] = [fused]
    return result


def residual_into_linear(window: Sequence[Instruction], readers: Readers) -> Instruction | None:
    """x + linear(y): the product is added to x where it is made."""
    linear, add = window
    if linear.op != Op.LINEAR or add.op != Op.ADD or len(linear.outs) > 1 or len(linear.ins) > 1:
        return None
    product = linear.outs[0]
    if readers[product.buffer] != 1 or product not in add.ins or add.ins[0] == add.ins[1]:
        return None
    residual = add.ins[1] if add.ins[0] == product else add.ins[0]
    return msgspec.structs.replace(linear, ins=[linear.ins[0], residual], outs=add.outs, i=[1])


def add_into_norm(window: Sequence[Instruction], readers: Readers) -> Instruction | None:
    """norm(x + y): the sum is made, and kept, by the norm."""
    add, norm = window
    is_norm = norm.op in (Op.RMS_NORM, Op.LAYER_NORM) and len(norm.ins) == 1
    if add.op != Op.ADD or not is_norm or norm.ins[0] != add.outs[0]:
        return None
    num_heads = norm.i[1]
    if num_heads != 1:
        return None
    return msgspec.structs.replace(norm, ins=add.ins, outs=[norm.outs[0], add.outs[0]])


def prepare_into_producer(window: Sequence[Instruction], readers: Readers) -> Instruction | None:
    """prepare(norm(x)), prepare(act_mul(x, y)), prepare(attention(q)): written prepared."""
    producer, prepare = window
    if producer.op not in _PREPARING or prepare.op != Op.PREPARE:
        return None
    made = producer.outs[0]
    if prepare.ins[0] != made or readers[made.buffer] != 1:
        return None
    constants = list(producer.i)
    constants[_PREPARING[producer.op]] = prepare.i[0]
    return msgspec.structs.replace(
        producer, outs=[prepare.outs[0], *producer.outs[1:]], i=constants
    )


def merge_linears(window: Sequence[Instruction], readers: Readers) -> Instruction | None:
    """Query, key and value, or gate and up: one pass over the input."""
    first, second = window
    if first.op != Op.LINEAR or second.op != Op.LINEAR or first.ins != second.ins:
        return None
    if len(first.ins) > 1 or len(first.outs) + len(second.outs) > MAX_LINEAR_SEGMENTS:
        return None
    return msgspec.structs.replace(
        first,
        outs=first.outs + second.outs,
        weights=first.weights + second.weights,
        vectors=first.vectors + second.vectors,
    )


def act_mul_into_linear(window: Sequence[Instruction], readers: Readers) -> Instruction | None:
    """act(gate(x)) * up(x), prepared: where the factors are made together they are not written."""
    linear, act_mul = window
    if linear.op != Op.LINEAR or act_mul.op != Op.ACT_MUL or len(linear.ins) > 1:
        return None
    if act_mul.ins != linear.outs or act_mul.i[2] == ElementType.F32:
        return None
    if any(readers[factor.buffer] != 1 for factor in linear.outs):
        return None
    return Instruction(
        Op.LINEAR_ACT_MUL,
        linear.rows,
        ins=linear.ins,
        outs=[*act_mul.outs, *linear.outs],
        weights=linear.weights,
        vectors=linear.vectors,
        i=act_mul.i,
    )


def rope_into_kv_write(window: Sequence[Instruction], readers: Readers) -> Instruction | None:
    """rope(q), rope(k), kv_write(k, v): K is rotated on its way into the cache."""
    rope_q, rope_k, write = window
    if (rope_q.op, rope_k.op, write.op) != (Op.ROPE, Op.ROPE, Op.KV_WRITE):
        return None
    is_same_rotation = (
        rope_q.vectors == rope_k.vectors and rope_q.f == rope_k.f and rope_q.i[1:] == rope_k.i[1:]
    )
    key = rope_k.ins[0]
    # nobody but its rotation and the cache may see K: the fused form need not store it
    if not is_same_rotation or write.ins[0] != key or key is None or readers[key.buffer] != 2:
        return None
    return Instruction(
        Op.ROPE_KV,
        write.rows,
        ins=[rope_q.ins[0], key, write.ins[1]],
        vectors=rope_q.vectors,
        i=[*rope_q.i[:3], write.i[0]],
        f=rope_q.f,
    )


FUSIONS = (
    Fusion(2, residual_into_linear),
    Fusion(2, add_into_norm),
    Fusion(2, prepare_into_producer),
    Fusion(2, merge_linears),
    Fusion(2, act_mul_into_linear),
    Fusion(3, rope_into_kv_write),
)
