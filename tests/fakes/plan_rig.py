"""Programs of a few instructions on the native library, with buffers written and read by tests.

Buffers share no memory and nothing is fused, so every value can be seen.

Knows nothing of: models, workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from octavo.ops.backend import KVPlacement, KVPool
from octavo.ops.interface import KVLayer
from octavo.ops.library import NativeWeight, load_library
from octavo.ops.plan import Plan, PlanOptions
from octavo.ops.program import Buffer, ElementType, Instruction, Op, Operand, Program, Rows
from octavo.ops.step import SampleOutputArrays, SamplingArrays, StepArrays
from octavo.worker.kv_cache import kv_cache_specs

F32 = npt.NDArray[np.float32]
#: buffers share no memory and nothing is fused
SEEN_APART = PlanOptions(is_fused=False, is_arena_shared=False)


class PlanRig:
    """A thread pool of one ISA level and the plan being built on it. Use `plan_rig`."""

    def __init__(
        self,
        isa: str | None,
        num_threads: int,
        *,
        spin_us: int,
        kv_dtype: str,
        max_tokens: int,
        max_requests: int,
        vocab_size: int,
        options: PlanOptions,
    ) -> None:
        self.library = load_library(isa)
        self.pool = self.library.create_pool(num_threads, spin_us=spin_us)
        self.program = Program()
        self.weights: list[NativeWeight] = []
        self.kv_dtype = kv_dtype
        self.max_tokens = max_tokens
        self.max_requests = max_requests
        self.vocab_size = vocab_size
        self.options = options
        self.plan: Plan | None = None

    def buffer(
        self,
        cols: int,
        rows: Rows = Rows.T,
        dtype: ElementType = ElementType.F32,
        *,
        is_chunked: bool = False,
    ) -> Operand:
        """A new buffer, as an operand of all its columns."""
        return Operand(self.program.add_buffer(Buffer(rows, cols, dtype, is_chunked)))

    def vector(self, values: npt.ArrayLike) -> int:
        """Index of a new f32 vector."""
        self.program.vectors.append(np.ascontiguousarray(values, np.float32))
        return len(self.program.vectors) - 1

    def kv_layer(self, layer: KVLayer) -> int:
        """Index of a new layer with a cache."""
        self.program.kv_layers.append(layer)
        return len(self.program.kv_layers) - 1

    def emit(
        self,
        op: Op,
        ins: Sequence[Operand | None] = (),
        outs: Sequence[Operand] = (),
        *,
        rows: Rows = Rows.T,
        weights: Sequence[int] = (),
        vectors: Sequence[int | None] = (),
        i: Sequence[int] = (),
        f: Sequence[float] = (),
    ) -> None:
        """Appends an instruction to the forward segment."""
        self.program.forward.append(
            Instruction(
                op, rows, list(ins), list(outs), list(weights), list(vectors), list(i), list(f)
            )
        )

    def emit_sample(
        self,
        op: Op,
        ins: Sequence[Operand | None] = (),
        outs: Sequence[Operand] = (),
        *,
        i: Sequence[int] = (),
        f: Sequence[float] = (),
    ) -> None:
        """Appends an instruction to the sample segment."""
        self.program.sample.append(
            Instruction(op, Rows.L, list(ins), list(outs), i=list(i), f=list(f))
        )

    def build(self, *, num_blocks: int = 1, block_size: int = 16) -> Plan:
        """Makes the plan, with a cache of `num_blocks` blocks.

        Raises:
            StartupError: the library refuses the program.
        """
        plan = Plan(
            self.library,
            self.pool,
            self.program,
            self.weights,
            vocab_size=self.vocab_size,
            max_tokens=self.max_tokens,
            max_requests=self.max_requests,
            kv_dtype=self.kv_dtype,
            options=self.options,
        )
        self.plan = plan
        placements, offset = [], 0
        for layer in self.program.kv_layers:
            placements.append(KVPlacement(layer, 0, offset))
            (spec,) = kv_cache_specs([layer], self.kv_dtype)
            offset += -(-spec.bytes_per_token() * block_size // 64) * 64
        plan.allocate_kv(KVPool(num_blocks, block_size, max(offset, 64), placements))
        return plan

    def step(
        self,
        num_tokens: int,
        *,
        num_generated: int | None = None,
        num_logits: int = 0,
        max_blocks: int = 1,
    ) -> StepArrays:
        """A step of one request with `num_tokens` new tokens at positions 0, 1, ...; the first
        `num_generated` count as generated ones, by default all."""
        step = StepArrays(
            max_tokens=self.max_tokens,
            max_requests=self.max_requests,
            num_groups=1,
            max_blocks=max_blocks,
        )
        step.num_tokens, step.num_requests, step.num_logits = num_tokens, 1, num_logits
        step.num_generated = num_tokens if num_generated is None else num_generated
        step.query_start[1] = step.seq_lens[0] = num_tokens
        step.positions[:num_tokens] = np.arange(num_tokens)
        return step

    def run(
        self,
        inputs: Sequence[tuple[Operand, F32]],
        *outputs: Operand,
        num_generated: int | None = None,
    ) -> list[F32]:
        """Runs one step over the rows of the inputs; the outputs as f32."""
        assert self.plan is not None
        num_tokens = len(inputs[0][1])
        for operand, values in inputs:
            self.plan.write(operand.buffer, values)
        assert self.plan.forward(self.step(num_tokens, num_generated=num_generated))
        return [self.plan.read(operand.buffer, num_tokens) for operand in outputs]

    def sample(
        self, logits: Operand, values: F32, sampling: SamplingArrays, *, max_logprobs: int = -1
    ) -> tuple[SampleOutputArrays, StepArrays]:
        """Runs the sample segment on given logits [L, vocab_size]."""
        assert self.plan is not None
        num_logits = len(values)
        self.plan.write(logits.buffer, values)
        step = self.step(num_logits, num_logits=num_logits)
        output = SampleOutputArrays(num_logits)
        output.reserve_logprobs(num_logits, max_logprobs)
        assert self.plan.sample(step, sampling, output)
        return output, step

    def close(self) -> None:
        """Frees the plan, the weights and the threads."""
        if self.plan is not None:
            self.plan.close()
        for weight in self.weights:
            weight.close()
        self.pool.close()


@contextmanager
def plan_rig(
    isa: str | None = None,
    num_threads: int = 1,
    *,
    spin_us: int = 0,
    kv_dtype: str = "float32",
    max_tokens: int = 64,
    max_requests: int = 64,
    vocab_size: int = 16,
    options: PlanOptions = SEEN_APART,
) -> Iterator[PlanRig]:
    """A rig that is closed at the end."""
    rig = PlanRig(
        isa,
        num_threads,
        spin_us=spin_us,
        kv_dtype=kv_dtype,
        max_tokens=max_tokens,
        max_requests=max_requests,
        vocab_size=vocab_size,
        options=options,
    )
    try:
        yield rig
    finally:
        rig.close()
