"""A compiled network without a model: it notes what each step was given and says what it is told.

Knows nothing of: weights, kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from octavo.ops.backend import KVPool
from octavo.ops.step import SampleOutputArrays, SamplingArrays, StepArrays


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


@dataclass
class FakeNetwork:
    """Draws `next_token` of (input id, position); rows in `bad_rows` get that status."""

    steps: list[SeenStep] = field(default_factory=list)
    pool: KVPool | None = None
    activation_bytes: int = 0
    is_aborted: bool = False
    is_closed: bool = False
    row_to_status: dict[int, int] = field(default_factory=dict)

    def allocate_kv(self, pool: KVPool) -> None:
        self.pool = pool

    def forward(self, step: StepArrays) -> bool:
        tokens, requests = step.num_tokens, step.num_requests
        self.steps.append(
            SeenStep(
                step.input_ids[:tokens].tolist(),
                step.positions[:tokens].tolist(),
                step.query_start[: requests + 1].tolist(),
                step.seq_lens[:requests].tolist(),
                step.logit_rows[: step.num_logits].tolist(),
                step.slot_mapping[:, :tokens].tolist(),
                step.block_tables[:, :requests].tolist(),
            )
        )
        return not self.is_aborted

    def sample(
        self, step: StepArrays, sampling: SamplingArrays, output: SampleOutputArrays
    ) -> bool:
        for row in range(step.num_logits):
            token = step.logit_rows[row]
            target = int(sampling.target[row])
            drawn = next_token(int(step.input_ids[token]), int(step.positions[token]))
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


def next_token(input_id: int, position: int) -> int:
    """What the fake draws after a token at a position."""
    return (input_id * 31 + position) % 1000
