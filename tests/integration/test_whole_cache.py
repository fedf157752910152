"""What one request may take of the KV cache: the front end and the core draw the same line."""

from __future__ import annotations

import msgspec
import pytest

from octavo.config.engine import CacheConfig, SchedulerConfig
from octavo.core.engine_core import EngineCore
from octavo.errors import PromptTooLong
from octavo.frontend.input_processor import InputProcessor
from octavo.frontend.prompt import TokensPrompt
from octavo.messages.engine import EngineCoreOutput, FinishReason
from octavo.messages.kv_cache import KVCacheSpec
from octavo.sampling_params import SamplingParams
from tests.fakes.engine_config import engine_config
from tests.fakes.fake_executor import FakeExecutor, solo_output


def core_and_input(
    windows: list[int | None], num_blocks: int, depth: int
) -> tuple[EngineCore, InputProcessor]:
    specs = [KVCacheSpec(n, 1, 8, 8, "float32", window) for n, window in enumerate(windows)]
    config = engine_config(
        cache=CacheConfig(num_gpu_blocks_override=num_blocks, block_size=4),
        scheduler=SchedulerConfig(
            max_num_batched_tokens=16, max_num_batched_tokens_is_given=True, depth=depth
        ),
        max_model_len=400,
    )
    core = EngineCore(config, FakeExecutor(specs=specs))
    checker = InputProcessor(msgspec.structs.replace(config.model, eos_token_ids=[]), None)
    checker.set_limits(core.ready.max_model_len, core.ready.kv_cache_size_tokens)
    return core, checker


def run(core: EngineCore) -> list[EngineCoreOutput]:
    outputs = []
    while core.has_work:
        said = core.step()
        outputs += said.outputs if said is not None else []
    return outputs


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("windows", [[None], [None, 8], [8], [None, 8, 20], [8, 8, None]])
@pytest.mark.parametrize("num_blocks", [29, 30, 37, 64, 101])
def test_the_longest_prompt_that_is_taken_runs_and_a_longer_one_is_a_400(
    windows: list[int | None], num_blocks: int, depth: int
) -> None:
    core, checker = core_and_input(windows, num_blocks, depth)
    params = SamplingParams(max_tokens=None, temperature=0.0, detokenize=False)
    longest = min(core.ready.max_model_len - 1, core.ready.kv_cache_size_tokens)
    with pytest.raises(PromptTooLong):
        checker.process(TokensPrompt([1] * (longest + 1)), params, "too long")
    prompt = [n % 900 for n in range(longest)]
    core.add_request(checker.process(TokensPrompt(prompt), params, "a"))
    outputs = run(core)
    assert outputs[-1].finish_reason is FinishReason.LENGTH
    assert [t for output in outputs for t in output.new_token_ids] == solo_output(prompt, 1)


@pytest.mark.parametrize("windows", [[None], [None, 8]])
def test_a_request_that_generates_until_the_cache_is_full_ends_by_length(
    windows: list[int | None],
) -> None:
    core, checker = core_and_input(windows, 41, 1)
    params = SamplingParams(max_tokens=None, temperature=0.0, detokenize=False)
    core.add_request(checker.process(TokensPrompt([5, 6, 7]), params, "a"))
    outputs = run(core)
    assert outputs[-1].finish_reason is FinishReason.LENGTH
    assert len(outputs) == core.ready.max_model_len - 3
