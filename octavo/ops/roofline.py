"""What a plan's instructions have to read and to compute, beside the time they took.

A `StepCounter` sums sizes of steps while a plan is profiled; `op_times` multiplies them with what
each instruction costs per row, per call and per attended token.

Runs in: workers. Knows nothing of: the native library, requests, printing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from octavo.messages.profile import OpTime
from octavo.ops.interface import KVLayer
from octavo.ops.program import ElementType, Instruction, Op, Program, Rows
from octavo.ops.step import StepArrays

_ARITHMETIC = {
    ElementType.A8: "int8",
    ElementType.A8R: "int8",
    ElementType.BF16: "bf16",
    ElementType.F32: "f32",
}


class SizedWeight(Protocol):
    """What is asked of a packed weight."""

    n: int
    k: int
    stored_bytes: int


class Attended(msgspec.Struct):
    """Totals of attention with one window."""

    pairs: int = 0  # query and key that it may see
    tokens: int = 0  # of caches, read once per request and step


class StepCounter:
    """Sizes of the steps that ran.

    Args:
        windows: the sliding windows of the model's layers; None is full attention.
        chunk_rows: logit rows of one pass over the sample segment.
    """

    def __init__(self, windows: Sequence[int | None], chunk_rows: int) -> None:
        self._chunk_rows = chunk_rows
        self.num_steps = 0
        self.rows: dict[Rows, int] = dict.fromkeys(Rows, 0)
        self.generated: Counter[Rows] = Counter()  # how many of the rows are generated tokens
        self.num_chunks = 0
        self.attended: dict[int | None, Attended] = {window: Attended() for window in windows}

    def add(self, step: StepArrays) -> None:
        """One step, before or after it ran."""
        self.num_steps += 1
        self.rows[Rows.T] += step.num_tokens
        self.generated[Rows.T] += step.num_generated
        selected = step.logit_rows[: step.num_logits]
        self.generated[Rows.S] += int(np.count_nonzero(selected < step.num_generated))
        self.rows[Rows.R] += step.num_requests
        self.rows[Rows.L] += step.num_logits
        self.rows[Rows.S] += step.num_logits
        self.num_chunks += -(-step.num_logits // self._chunk_rows)
        last = step.seq_lens[: step.num_requests].astype(np.int64)
        new = np.diff(step.query_start[: step.num_requests + 1]).astype(np.int64)
        for window, total in self.attended.items():
            seen = _visible_until(last, window) - _visible_until(last - new, window)
            total.pairs += int(seen.sum())
            first = 0 if window is None else np.maximum(last - new - window + 1, 0)
            total.tokens += int((last - first).sum())


def _visible_until(length: npt.NDArray[np.int64], window: int | None) -> npt.NDArray[np.int64]:
    """Pairs of each request whose query is one of its first `length` tokens."""
    pairs = length * (length + 1) // 2
    if window is not None:
        beyond = np.maximum(length - window, 0)
        pairs -= beyond * (beyond + 1) // 2
    return pairs


class _Total(msgspec.Struct):
    """Of one kind of operation."""

    calls: int = 0
    nanoseconds: int = 0
    read: int = 0
    operations: Counter[str] = msgspec.field(default_factory=Counter)


def op_times(
    program: Program,
    weights: Sequence[SizedWeight],
    kv_bytes_per_value: int,
    counter: StepCounter,
    timers: Sequence[tuple[Instruction, int]],
    prompt_type: ElementType,
) -> list[OpTime]:
    """Totals by kind of operation, most time first.

    Args:
        program: as it ran.
        weights: what its instructions number.
        kv_bytes_per_value: of the cache's element type.
        counter: of the steps that the timers have seen.
        timers: nanoseconds of every instruction, forward first.
        prompt_type: how quantised weights read tokens of prompts.
    """
    totals: dict[Op, _Total] = {}
    for index, (item, nanoseconds) in enumerate(timers):
        is_sample = index >= len(program.forward)
        calls = counter.num_chunks if is_sample else counter.num_steps
        rows = counter.rows[Rows.L if is_sample else item.rows]
        total = totals.setdefault(item.op, _Total())
        read = 0
        if item.op in (Op.LINEAR, Op.LINEAR_ACT_MUL, Op.LM_HEAD):
            used = [weights[number] for number in item.weights]
            source = item.ins[0]
            assert source is not None
            dtype = program.buffers[source.buffer].dtype
            read = calls * sum(weight.stored_bytes for weight in used)
            per_row = sum(2 * weight.n * weight.k for weight in used)
            prompts = 0
            if dtype == ElementType.A8 and item.rows in (Rows.T, Rows.S):
                prompts = rows - counter.generated[item.rows]
            total.operations[_ARITHMETIC[prompt_type]] += prompts * per_row
            total.operations[_ARITHMETIC[dtype]] += (rows - prompts) * per_row
        elif item.op == Op.EMBED:
            weight = weights[item.weights[0]]
            read = rows * weight.stored_bytes // weight.n
        elif item.op == Op.ATTENTION:
            read, operations = _attention(
                item, program.kv_layers, counter.attended, kv_bytes_per_value
            )
            total.operations["f32" if kv_bytes_per_value == 4 else "bf16"] += operations
        total.calls += calls
        total.nanoseconds += nanoseconds
        total.read += read
    times = [
        OpTime(
            op.name,
            total.calls,
            total.nanoseconds * 1e-9,
            total.read,
            {name: count for name, count in total.operations.items() if count},
        )
        for op, total in totals.items()
    ]
    return sorted(times, key=lambda time: -time.seconds)


def _attention(
    item: Instruction,
    layers: Sequence[KVLayer],
    attended: Mapping[int | None, Attended],
    bytes_per_value: int,
) -> tuple[int, int]:
    num_heads, layer = item.i[0], layers[item.i[1]]
    total = attended[item.i[2] or None]
    dims = layer.k_head_dim + layer.v_head_dim
    read = total.tokens * layer.num_kv_heads * dims * bytes_per_value
    return read, 2 * total.pairs * num_heads * dims


def windows_of(program: Program) -> list[int | None]:
    """The distinct windows that a program attends with."""
    return list({item.i[2] or None for item in program.forward if item.op == Op.ATTENTION})
