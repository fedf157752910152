"""Steps that are prepared while another computes: the same bits as one after the other."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from octavo.core.engine_core import EngineCore
from octavo.messages.engine import EngineCoreOutput, EngineCoreRequest
from octavo.sampling_params import SamplingParams
from octavo.worker.model_runner import StepAborted
from tests.fakes.requests import core_request
from tests.fakes.tiny_engine import VOCAB_SIZE, tiny_engine

NUM_REQUESTS = 24


@dataclass
class Script:
    """Requests, the step before which each arrives, and who is given up and when."""

    requests: list[tuple[int, EngineCoreRequest]] = field(default_factory=list)
    aborts: dict[str, int] = field(default_factory=dict)  # request_id -> tokens it has by then


@dataclass
class Got:
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[object] = field(default_factory=list)
    prompt_logprobs: object = None
    end: object = None


def random_params(rng: random.Random) -> dict[str, object]:
    """Every kind of sampling: what looks back at its own tokens and what does not."""
    params: dict[str, object] = {"max_tokens": rng.randint(1, 30)}
    if rng.random() < 0.6:
        params |= {"temperature": 1.0, "seed": rng.randrange(100), "top_p": 0.9}
    if rng.random() < 0.3:
        params |= {"repetition_penalty": 1.3, "presence_penalty": 0.5}
    if rng.random() < 0.2:
        params |= {"min_tokens": 1, "logit_bias": {3: 2.0}}
    if rng.random() < 0.2:
        params["bad_words_token_ids"] = [[rng.randrange(VOCAB_SIZE)], [5, 6], [7]]
    if rng.random() < 0.3:
        params["logprobs"] = rng.randint(0, 3)
    if rng.random() < 0.2:
        params["prompt_logprobs"] = rng.randint(0, 2)
    return params


def random_script(seed: int) -> Script:
    rng, script = random.Random(seed), Script()
    prefixes = [[rng.randrange(VOCAB_SIZE) for _ in range(40)] for _ in range(2)]
    for number in range(NUM_REQUESTS):
        tail = [rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(1, 30))]
        prompt = rng.choice(prefixes)[: rng.choice([0, 17, 40])] + tail
        request = core_request(
            f"r{number}",
            prompt,
            priority=rng.randint(0, 2),
            arrival_time_s=number,
            eos_token_ids=rng.sample(range(VOCAB_SIZE), rng.choice([0, 4])),
            **random_params(rng),
        )
        script.requests.append((rng.randrange(40), request))
        if rng.random() < 0.2:
            script.aborts[request.request_id] = rng.randrange(6)
    return script


def play(core: EngineCore, script: Script) -> dict[str, Got]:
    """Everything each request gets."""
    results = {request.request_id: Got() for _, request in script.requests}
    number = 0
    while core.has_work or any(step >= number for step, _ in script.requests):
        for step, request in script.requests:
            if step == number:
                core.add_request(request)
        said = core.step()
        for output in said.outputs if said is not None else ():
            take(results[output.request_id], output)
        for request_id, num_tokens in script.aborts.items():
            if len(results[request_id].token_ids) >= num_tokens:
                core.abort_requests([request_id])
        number += 1
        assert number < 3000, "no end"
    return results


def take(got: Got, output: EngineCoreOutput) -> None:
    assert got.end is None, "an output after the end"
    got.token_ids += output.new_token_ids
    got.logprobs += output.logprobs or []
    if output.prompt_logprobs is not None:
        assert got.prompt_logprobs is None, "prompt log-probabilities come once"
        got.prompt_logprobs = output.prompt_logprobs
    if output.finish_reason is not None:
        got.end = (output.finish_reason, output.stop_reason, output.error)


@pytest.fixture(params=["roomy", "tight", "priority"])
def settings(request: pytest.FixtureRequest) -> dict[str, object]:
    return {
        "roomy": {"num_blocks": 80, "max_num_seqs": 8, "max_num_batched_tokens": 64},
        "tight": {"num_blocks": 10, "max_num_seqs": 4, "max_num_batched_tokens": 24},
        "priority": {
            "num_blocks": 12,
            "max_num_seqs": 6,
            "max_num_batched_tokens": 32,
            "policy": "priority",
            "long_prefill_token_threshold": 8,
            "scheduler_reserve_full_isl": False,
        },
    }[request.param]


@pytest.mark.parametrize("seed", range(6))
def test_a_random_load_gets_the_same_bits_as_at_depth_one(
    settings: dict[str, object], seed: int
) -> None:
    script, results = random_script(seed), []
    for depth in (1, 2):
        core = tiny_engine(depth=depth, **settings)  # type: ignore[arg-type]
        results.append(play(core, script))
        assert core.reset_prefix_cache()  # nobody holds a block
        core.shutdown()
    for request_id, one in results[0].items():
        two = results[1][request_id]
        if request_id in script.aborts:  # when it takes effect depends on the depth
            shorter = min(len(one.token_ids), len(two.token_ids))
            assert one.token_ids[:shorter] == two.token_ids[:shorter], request_id
            continue
        assert one == two, request_id
        assert one.end is not None


@pytest.fixture
def core() -> Iterator[EngineCore]:
    core = tiny_engine(depth=2)
    yield core
    core.shutdown()


def test_a_token_beyond_the_stop_is_computed_and_dropped(core: EngineCore) -> None:
    core.add_request(core_request("a", [1, 2, 3], max_tokens=12))
    tokens = play_out(core)["a"]
    core.add_request(core_request("b", [1, 2, 3], max_tokens=12, stop_token_ids=[tokens[4]]))
    expected = tokens[: tokens.index(tokens[4]) + 1]
    assert play_out(core)["b"] == expected


def test_rows_are_used_again_at_once(core: EngineCore) -> None:
    """A request that takes the row of one whose last step is still on its way."""
    alone = {}
    for number in range(4):
        core.add_request(core_request(f"alone{number}", [number, 5, 6], max_tokens=6))
        alone[number] = play_out(core)[f"alone{number}"]
    for number in range(4):
        core.add_request(core_request("lost", [90, number], max_tokens=20))
        core.step()
        core.abort_requests(["lost"])
        core.add_request(core_request(f"next{number}", [number, 5, 6], max_tokens=6))
        assert play_out(core)[f"next{number}"] == alone[number]


def test_a_step_that_cannot_run_ends_the_core_with_its_cause(core: EngineCore) -> None:
    core.add_request(core_request("a", max_tokens=20))
    core.step()
    core.abort_step()
    with pytest.raises(StepAborted):
        play_out(core)


def test_shutdown_with_a_step_on_its_way_leaves_nothing_behind() -> None:
    core = tiny_engine(depth=2)
    core.add_request(core_request("a", list(range(60)), max_tokens=60))
    core.step()
    core.shutdown()
    core.shutdown()


def play_out(core: EngineCore) -> dict[str, list[int]]:
    tokens: dict[str, list[int]] = {}
    while core.has_work:
        said = core.step()
        for output in said.outputs if said is not None else ():
            tokens.setdefault(output.request_id, []).extend(output.new_token_ids)
    return tokens


def test_params_cover_what_looks_back() -> None:
    """The load above would prove little without these."""
    asked = [
        request.sampling_params for seed in range(6) for _, request in random_script(seed).requests
    ]
    assert all(
        any(has(params) for params in asked)
        for has in (
            lambda p: p.repetition_penalty != 1,
            lambda p: p.bad_words_token_ids,
            lambda p: p.min_tokens,
            lambda p: p.prompt_logprobs is not None,
            lambda p: p.logprobs,
        )
    )
    assert all(isinstance(params, SamplingParams) for params in asked)
