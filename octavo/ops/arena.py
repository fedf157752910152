"""Where each buffer of a program lies in the activation arena.

A buffer lives from the instruction that first writes it to the one that last reads it; buffers
whose lives do not meet share memory. Placement is greedy by size, as in Pisarchyk & Lee, "Efficient
Memory Management for Deep Neural Net Inference", 2020, section 5.2.

Runs in: workers, once. Knows nothing of: what instructions compute.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from operator import itemgetter

import msgspec

from octavo.ops.program import Instruction, Op, Program


class ArenaLayout(msgspec.Struct, frozen=True):
    """Offsets in bytes of all buffers (-1: unused) and the size of the arena."""

    offsets: list[int]
    arena_bytes: int


class _Life(msgspec.Struct):
    first: int
    last: int


def lay_out(
    program: Program, buffer_bytes: Callable[[int], int], *, is_shared: bool
) -> ArenaLayout:
    """Places every buffer that an instruction uses.

    Args:
        buffer_bytes: size of a buffer, a multiple of the alignment.
        is_shared: let buffers share memory; otherwise each keeps its last value until the next
            step, so that it can be read.
    """
    lives = _lives(program)
    if not is_shared:
        return _place_apart(program, lives, buffer_bytes)
    same_as = _share_residuals(program, lives)
    placed: list[tuple[int, int, _Life]] = []  # offset, end, life; by offset
    root_to_offset: dict[int, int] = {}
    roots = [buffer for buffer in lives if buffer not in same_as]
    for buffer in sorted(roots, key=buffer_bytes, reverse=True):
        life, size = lives[buffer], buffer_bytes(buffer)
        offset = 0
        for start, end, other in placed:
            if other.last < life.first or life.last < other.first:
                continue
            if start - offset >= size:
                break
            offset = max(offset, end)
        insort(placed, (offset, offset + size, life), key=itemgetter(0))
        root_to_offset[buffer] = offset
    offsets = [-1] * len(program.buffers)
    for buffer in lives:
        offsets[buffer] = root_to_offset[_root(buffer, same_as)]
    return ArenaLayout(offsets, max((end for _, end, _ in placed), default=0))


def _lives(program: Program) -> dict[int, _Life]:
    """Buffer -> numbers of the first and the last instruction that touch it.

    The sample segment runs once per chunk of rows: what it reads of the forward segment lives until
    its end.
    """
    lives: dict[int, _Life] = {}
    instructions: Sequence[Instruction] = (*program.forward, *program.sample)
    for number, item in enumerate(instructions):
        for buffer in item.reads() | item.writes():
            life = lives.setdefault(buffer, _Life(number, number))
            life.last = number
    for life in lives.values():
        if life.first < len(program.forward) <= life.last:
            life.last = len(instructions)
    return lives


def _place_apart(
    program: Program, lives: dict[int, _Life], buffer_bytes: Callable[[int], int]
) -> ArenaLayout:
    offsets, end = [-1] * len(program.buffers), 0
    for buffer in lives:
        offsets[buffer] = end
        end += buffer_bytes(buffer)
    return ArenaLayout(offsets, end)


def _share_residuals(program: Program, lives: dict[int, _Life]) -> dict[int, int]:
    """Buffer -> the one whose place it takes: a linear adds to its residual where it lies."""
    same_as: dict[int, int] = {}
    for number, item in enumerate(program.forward):
        if item.op != Op.LINEAR or len(item.ins) < 2:
            continue
        residual, made = item.ins[1], item.outs[0]
        assert residual is not None
        root = _root(residual.buffer, same_as)
        is_last_use = lives[root].last == number and residual.col == 0
        if is_last_use and program.buffers[residual.buffer] == program.buffers[made.buffer]:
            same_as[made.buffer] = root
            lives[root].last = lives[made.buffer].last
    return same_as


def _root(buffer: int, same_as: dict[int, int]) -> int:
    while buffer in same_as:
        buffer = same_as[buffer]
    return buffer
