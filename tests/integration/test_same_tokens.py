"""C53: a greedy request's tokens are the same alone, in a batch, after a prefix hit and after a
preemption, for every arithmetic; so are their log probabilities, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from octavo.outputs import RequestOutput
from octavo.sampling_params import RequestOutputKind, SamplingParams
from tests.integration.stepping import Sink, SteppingEngine

PROMPT = (
    "The lighthouse keeper wrote in his book every evening: the wind, the ships he had seen, and "
    "what he had for dinner. Today he wrote:"
)
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon"]
NUM_TOKENS = 12
GREEDY = SamplingParams(
    temperature=0.0,
    max_tokens=NUM_TOKENS,
    logprobs=2,
    ignore_eos=True,
    output_kind=RequestOutputKind.FINAL_ONLY,
)


@pytest.fixture(scope="module", params=["float32", "bfloat16", "auto"])
def engine(request: pytest.FixtureRequest) -> Iterator[SteppingEngine]:
    """The default model. As float32 and bfloat16 its weights are expanded; auto computes with its
    4-bit weights and activations of 8 bits."""
    with SteppingEngine(
        dtype=request.param,
        max_model_len=512,
        kv_cache_memory_bytes=2**26,
        max_num_batched_tokens=512,  # given: however busy the machine, all come in one step
    ) as made:
        yield made


@pytest.fixture(scope="module")
def alone(engine: SteppingEngine) -> Any:
    engine.forget_prefixes()
    output = engine.run(PROMPT, GREEDY)
    assert output.num_cached_tokens == 0
    return said(output)


def said(output: RequestOutput) -> Any:
    (one,) = output.outputs
    assert len(one.token_ids) == NUM_TOKENS
    return one.token_ids, one.logprobs, one.cumulative_logprob


def among_others(engine: SteppingEngine, num_steps_before: int) -> Sink:
    """The request comes into the midst of 15 others."""
    for number in range(15):
        engine.add(f"{number} {WORDS[number % 5]} is" + " x" * number, GREEDY)
    for _ in range(num_steps_before):
        engine.step()
    return engine.add(PROMPT, GREEDY)[1]


@pytest.mark.parametrize("num_steps_before", [0, 5])
def test_c53_the_same_in_a_batch_of_16(
    engine: SteppingEngine, alone: Any, num_steps_before: int
) -> None:
    engine.forget_prefixes()
    sink = among_others(engine, num_steps_before)
    most = 0
    while engine.step():
        assert engine.totals.last is not None
        most = max(most, engine.totals.last.num_running_reqs)
    assert most == 16
    assert said(sink.outputs[-1]) == alone


def test_c53_the_same_with_a_prefix_hit(engine: SteppingEngine, alone: Any) -> None:
    engine.run(PROMPT, GREEDY)
    output = engine.run(PROMPT, GREEDY)
    assert output.num_cached_tokens == len(output.prompt_token_ids) // 16 * 16
    assert said(output) == alone


@pytest.mark.parametrize("num_steps", [1, 7])
def test_c53_the_same_after_a_forced_preemption(
    engine: SteppingEngine, alone: Any, num_steps: int
) -> None:
    engine.forget_prefixes()
    sink = among_others(engine, 2)
    for _ in range(num_steps):
        engine.step()
    before = engine.totals.num_preemptions
    assert engine.core.reset_prefix_cache(preempt_running=True)
    engine.finish()
    assert engine.totals.num_preemptions == before + 16
    assert said(sink.outputs[-1]) == alone
