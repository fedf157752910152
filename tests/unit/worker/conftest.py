"""A model runner over a fake network, and the scheduler's words for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from octavo.messages.step import ModelRunnerOutput, NewRequestData, SchedulerOutput
from octavo.sample.logits_processor import LogitsProcessor
from octavo.sample.sampling_rows import SamplingRows
from octavo.sampling_params import SamplingParams
from octavo.worker.input_batch import InputBatch
from octavo.worker.model_runner import ModelRunner
from octavo.worker.request_states import RequestStates
from tests.fakes.fake_network import FakeNetwork

BLOCK_SIZE = 4
MAX_REQUESTS = 4
MAX_TOKENS = 64
VOCAB_SIZE = 1000


@dataclass
class Known:
    """A request that the runner has; where it must be, and what its table gets."""

    request_id: str
    num_computed_tokens: int
    new_block_ids: list[int]


class Rig:
    """A runner with everything it stands on; requests are driven by name."""

    def __init__(
        self,
        num_groups: int = 1,
        processors: Sequence[LogitsProcessor] = (),
        *,
        num_batches: int = 2,
    ) -> None:
        self.network = FakeNetwork()
        self.states = RequestStates(
            SamplingRows(
                max_requests=MAX_REQUESTS,
                vocab_size=VOCAB_SIZE,
                engine_seed=0,
                processors=processors,
            ),
            max_requests=MAX_REQUESTS,
            max_model_len=64,
            num_groups=num_groups,
            block_size=BLOCK_SIZE,
        )
        self.batches = [
            InputBatch(
                self.states, max_tokens=MAX_TOKENS, max_requests=MAX_REQUESTS, block_size=BLOCK_SIZE
            )
            for _ in range(num_batches)
        ]
        self.runner = ModelRunner(self.network, self.states, self.batches, max_logits=MAX_TOKENS)

    def step(
        self,
        *parts: tuple[NewRequestData | Known, int],
        finished: tuple[str, ...] = (),
    ) -> ModelRunnerOutput:
        """One step of these requests, each with its number of tokens."""
        known = [data for data, _ in parts if isinstance(data, Known)]
        for request in known:
            row = self.states.row(request.request_id)
            assert self.states.num_computed_tokens[row] == request.num_computed_tokens
        return self.runner.execute_model(
            SchedulerOutput(
                [data for data, _ in parts if isinstance(data, NewRequestData)],
                {request.request_id: [request.new_block_ids] for request in known},
                {data.request_id: count for data, count in parts},
                sum(count for _, count in parts),
                list(finished),
            )
        )


def new(
    request_id: str,
    token_ids: list[int],
    block_ids: list[int],
    *,
    num_prompt_tokens: int | None = None,
    num_computed_tokens: int = 0,
    params: SamplingParams | None = None,
) -> NewRequestData:
    """A request in one KV group; all its tokens are the prompt unless said otherwise."""
    return NewRequestData(
        request_id,
        token_ids,
        len(token_ids) if num_prompt_tokens is None else num_prompt_tokens,
        params or SamplingParams(temperature=0.0),
        [block_ids],
        num_computed_tokens,
    )


def running(request_id: str, num_computed_tokens: int, *block_ids: int) -> Known:
    """A known request, with blocks added to its table."""
    return Known(request_id, num_computed_tokens, list(block_ids))


@pytest.fixture
def make_rig() -> Callable[..., Rig]:
    return Rig


@pytest.fixture(params=[1, 2], ids=["one step", "two steps"])
def rig(request: pytest.FixtureRequest) -> Rig:
    """With so many steps on their way."""
    return Rig(num_batches=request.param)
