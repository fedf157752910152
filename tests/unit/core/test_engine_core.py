"""The engine core with an executor that checks every slot it reads."""

from __future__ import annotations

import pytest

from octavo.config.engine import CacheConfig, SchedulerConfig
from octavo.core.engine_core import EngineCore, limit_step
from octavo.errors import StartupError
from octavo.messages.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
from octavo.sampling_params import SamplingParams
from tests.fakes.engine_config import engine_config
from tests.fakes.fake_executor import FakeExecutor, solo_output


def request(
    request_id: str, prompt: list[int], *, max_tokens: int = 5, **fields: object
) -> EngineCoreRequest:
    return EngineCoreRequest(
        request_id=request_id,
        prompt_token_ids=prompt,
        sampling_params=SamplingParams(max_tokens=max_tokens, temperature=0.0),
        arrival_time_s=0.0,
        **fields,  # type: ignore[arg-type]
    )


def run(core: EngineCore, *, max_steps: int = 10_000) -> dict[str, list[EngineCoreOutput]]:
    """Steps until there is no work; outputs by request."""
    outputs: dict[str, list[EngineCoreOutput]] = {}
    for _ in range(max_steps):
        if not core.has_work:
            return outputs
        said = core.step()
        for output in said.outputs if said else ():
            outputs.setdefault(output.request_id, []).append(output)
    raise AssertionError("the engine does not come to an end")


def tokens(outputs: list[EngineCoreOutput]) -> list[int]:
    return [token_id for output in outputs for token_id in output.new_token_ids]


def test_a_request_runs_to_its_length() -> None:
    core = EngineCore(engine_config(), FakeExecutor())
    core.add_request(request("a", [1, 2, 3], max_tokens=4))
    outputs = run(core)["a"]
    assert tokens(outputs) == solo_output([1, 2, 3], 4)
    assert [o.finish_reason for o in outputs] == [None, None, None, FinishReason.LENGTH]
    assert not core.has_work
    assert core.step() is None
