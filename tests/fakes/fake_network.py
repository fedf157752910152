"""A compiled network without a model: it notes what each step was given and says what it is told.

Knows nothing of: weights, kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from octavo.ops.backend import KVPool
from octavo.ops.step import Int32Array, SampleOutputArrays, SamplingArrays, StepArrays


@dataclass
class SeenStep:
    """Copies of a step's arrays, cut to their sizes."""

    input_ids: list[int]
    positions: list[int]
    query_start: list[int]
    seq_lens: list[int]
    logit_rows: list[int]
    slot_mapping: list[list[int]]  # per group
    block_tables: list[list[list[int]]]  # per group and request
    num_generated: int


@dataclass
class FakeNetwork:
    """Draws `next_token` of (input id, position); rows in `bad_rows` get that status."""

    steps: list[SeenStep] = field(default_factory=list)
    pool: KVPool | None = None
    prefaults: list[int] = field(default_factory=list)
    activation_bytes: int = 0
    is_aborted: bool = False
    is_closed: bool = False
    row_to_status: dict[int, int] = field(default_factory=dict)

    def allocate_kv(self, pool: KVPool) -> None:
        self.pool = pool

    def prefault_kv(self, num_blocks: int) -> None:
        self.prefaults.append(num_blocks)

    def forward(self, step: StepArrays) -> bool:
        tokens, requests = step.num_tokens, step.num_requests
        self.steps.append(
            SeenStep(
                _input_ids(step).tolist(),
                step.positions[:tokens].tolist(),
                step.query_start[: requests + 1].tolist(),
                step.seq_lens[:requests].tolist(),
                step.logit_rows[: step.num_logits].tolist(),
                step.slot_mapping[:, :tokens].tolist(),
                step.block_tables[:, :requests].tolist(),
                step.num_generated,
            )
        )
        return not self.is_aborted

    def sample(
        self, step: StepArrays, sampling: SamplingArrays, output: SampleOutputArrays
    ) -> bool:
        input_ids = _input_ids(step)
        for row in range(step.num_logits):
            token = step.logit_rows[row]
            target = int(sampling.target[row])
            drawn = next_token(int(input_ids[token]), int(step.positions[token]))
            if sampling.state_row[row] >= 0:
                step.last_tokens[sampling.state_row[row]] = drawn
            output.sampled[row] = drawn if target < 0 else target
            output.status[row] = self.row_to_status.get(row, output.OK)
            if output.max_logprobs >= 0:
                count = output.max_logprobs + 1
                output.logprob_ids[row] = [output.sampled[row], *range(count - 1)]
                output.logprob_values[row] = -np.arange(count)
                output.logprob_ranks[row] = range(1, count + 1)
        return not self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None:
        self.is_closed = True


def _input_ids(step: StepArrays) -> Int32Array:
    """[T] what a step reads: given ids, or the last one drawn in a row."""
    ids = step.input_ids[: step.num_tokens].copy()
    is_drawn = step.input_rows[: step.num_tokens] >= 0
    ids[is_drawn] = step.last_tokens[step.input_rows[: step.num_tokens][is_drawn]]
    return ids


def next_token(input_id: int, position: int) -> int:
    """What the fake draws after a token at a position."""
    return (input_id * 31 + position) % 1000
