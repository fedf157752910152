"""Eight blocks of KV cache for everybody: preemption, shared prefixes, priorities, clients that
leave. Each output must be what the request gets alone, to the bit.

Once with the whole engine in this process, where a test decides what happens between two steps, on
a random model; once against a real server.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from octavo.ops.ggml_type import GGMLType
from octavo.ops.library import load_library
from octavo.ops.program import ElementType
from octavo.outputs import CompletionOutput
from octavo.sampling_params import RequestOutputKind, SamplingParams
from tests.fakes.gguf_writer import FakeTensor
from tests.fakes.memory_checkpoint import random_tensor
from tests.fakes.tiny_checkpoint import tiny_gguf, tiny_tensors
from tests.fakes.tiny_folder import write_tiny_folder
from tests.integration.replies import COMPLETIONS, chunks, refused, text_of, wait_idle
from tests.integration.server import Server, Stream, serving
from tests.integration.stepping import Sink, SteppingEngine, Totals

BLOCK_SIZE, NUM_BLOCKS = 16, 8
WINDOW = BLOCK_SIZE * NUM_BLOCKS  # one request can have everything
NUM_REQUESTS = 64


@dataclass
class Wish:
    """A request, when it comes and when its client leaves (in steps; None: it stays)."""

    prompt: list[int]
    params: SamplingParams
    priority: int
    comes: int
    leaves_after: int | None
    sink: Sink = field(default_factory=Sink)
    request_id: str = ""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiny_folder(tmp_path_factory.mktemp("pressure") / "tiny")


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A GGUF file with matrices of 8 bits: prompts are computed otherwise than generated tokens, if
    the level does that."""
    rng = np.random.default_rng(0)
    tensors = {
        name: FakeTensor(
            tensor.shape,
            GGMLType.Q8_0,
            bytes(random_tensor(name, tensor.shape, GGMLType.Q8_0, rng).data),
        )
        if len(tensor.shape) == 2
        else tensor
        for name, tensor in tiny_tensors().items()
    }
    return str(tiny_gguf(tmp_path_factory.mktemp("pressure") / "q8_0.gguf", tensors=tensors))


def random_wish(rng: random.Random, prefixes: list[list[int]]) -> Wish:
    prompt = [*rng.choice(prefixes), *rng.choices(range(256), k=rng.randint(1, 24))]
    wants = rng.random()
    params = SamplingParams(
        max_tokens=rng.choice([0, 1, 5, 20, 40]),
        n=rng.choice([1, 1, 1, 2, 3]),
        temperature=rng.choice([0.0, 1.0]),
        seed=rng.randrange(1000),
        logprobs=2 if wants < 0.5 else None,
        prompt_logprobs=1 if wants < 0.2 else None,
        stop=["e", "0"] if rng.random() < 0.2 else None,
        repetition_penalty=rng.choice([1.0, 1.0, 1.3]),
        min_tokens=0,
        ignore_eos=rng.random() < 0.5,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    leaves_after = rng.randint(0, 30) if rng.random() < 0.2 else None
    return Wish(prompt, params, rng.randint(0, 3), rng.randint(0, 120), leaves_after)


def said(outputs: list[CompletionOutput]) -> list[Any]:
    """Everything that must not depend on company."""
    return [
        (o.index, o.text, o.token_ids, o.logprobs, o.cumulative_logprob, o.finish_reason)
        for o in outputs
    ]


def under_pressure(engine: SteppingEngine, wishes: list[Wish]) -> None:
    """Lets everybody come and leave in their time; ends when nobody is left."""
    waiting = sorted(wishes, key=lambda wish: wish.comes)
    leaving: list[tuple[int, str]] = []
    for step in range(10_000):
        while waiting and waiting[0].comes <= step:
            wish = waiting.pop(0)
            wish.request_id, wish.sink = engine.add(
                wish.prompt, wish.params, priority=wish.priority
            )
            if wish.leaves_after is not None:
                leaving.append((step + wish.leaves_after, wish.request_id))
        for when, request_id in leaving:
            if when == step:
                engine.abort(request_id)
        if not engine.step() and not waiting:
            return
    raise AssertionError("no end")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "auto"])
@pytest.mark.parametrize("seed", range(3))
def test_every_output_under_pressure_is_the_one_it_has_alone(
    tiny: str, quantised: str, dtype: str, seed: int
) -> None:
    model = quantised if dtype == "auto" else tiny
    rng = random.Random(seed)
    prefixes = [rng.choices(range(256), k=length) for length in (0, 16, 33, 48)]
    wishes = [random_wish(rng, prefixes) for _ in range(NUM_REQUESTS)]
    with SteppingEngine(
        model,
        dtype=dtype,
        max_model_len=WINDOW,
        num_gpu_blocks_override=NUM_BLOCKS + 1,  # block 0 is never used
        block_size=BLOCK_SIZE,
        scheduling_policy="priority",
        max_num_batched_tokens=48,
        # with it, requests behind one that still reads its prompt have begun to generate
        long_prefill_token_threshold=16 * (seed % 2),
        max_num_seqs=16,
    ) as engine:
        assert engine.core.ready.num_blocks == NUM_BLOCKS + 1
        under_pressure(engine, wishes)
        totals = engine.totals
        engine.forget_prefixes()  # nobody holds a block
    with SteppingEngine(
        model, dtype=dtype, max_model_len=WINDOW, enable_prefix_caching=False
    ) as solo:
        stayed = 0
        for wish in wishes:
            if not wish.sink.is_finished:  # its client left before the end
                assert wish.leaves_after is not None
                continue
            stayed += 1
            assert wish.sink.error is None
            alone = solo.run(wish.prompt, wish.params)
            output = wish.sink.outputs[-1]
            assert said(output.outputs) == said(alone.outputs)
            assert output.prompt_logprobs == alone.prompt_logprobs
    assert stayed > NUM_REQUESTS / 2
    check_totals(totals, wishes)


@pytest.mark.parametrize("prompt_dtype", ["auto", "int8"])
def test_a_reply_inside_the_next_prompt_is_read_as_a_prompt(
    quantised: str, prompt_dtype: str
) -> None:
    """What is cached of it is used only if it was computed in the same way."""
    rng = random.Random(5)
    options: dict[str, Any] = {"max_model_len": WINDOW, "prompt_dtype": prompt_dtype}
    params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True, logprobs=2)
    prompt = rng.choices(range(256), k=20)
    with SteppingEngine(quantised, **options) as engine:
        (spec, *_) = engine.core._executor.kv_cache_specs()
        reply = engine.run(prompt, params).outputs[0].token_ids
        turn = engine.run([*prompt, *reply, 1], params)
        again = engine.run([*prompt, *reply, 1], params)
    with SteppingEngine(quantised, enable_prefix_caching=False, **options) as solo:
        alone = solo.run([*prompt, *reply, 1], params)
    assert said(turn.outputs) == said(again.outputs) == said(alone.outputs)
    library = load_library()
    is_apart = library.input_type(GGMLType.Q8_0, is_prompt=True) != ElementType.A8
    assert spec.tells_prompts_apart is (is_apart and prompt_dtype == "auto")
    assert turn.num_cached_tokens == (16 if spec.tells_prompts_apart else 48)
    assert again.num_cached_tokens == 48


def check_totals(totals: Totals, wishes: list[Wish]) -> None:
    """What the statistics said adds up to what the requests got."""
    assert totals.last is not None
    assert (totals.last.num_running_reqs, totals.last.num_waiting_reqs) == (0, 0)
    assert totals.last.kv_cache_usage == 0.0
    assert totals.num_preemptions > 0
    assert totals.num_preemptions >= sum(stats.num_preemptions for stats in totals.finished)
    assert len(totals.finished) == sum(wish.params.n for wish in wishes)
    done = [wish.sink.outputs[-1] for wish in wishes if wish.sink.is_finished]
    by_reason = [stats.finish_reason for stats in totals.finished]
    # of the outputs of one wish some may have ended when its client leaves
    num_early = len(by_reason) - sum(len(o.outputs) for o in done) - by_reason.count("abort")
    left = [wish for wish in wishes if not wish.sink.is_finished]
    assert 0 <= num_early <= sum(wish.params.n - 1 for wish in left)
    assert totals.num_generation_tokens == sum(
        stats.num_generation_tokens for stats in totals.finished
    )
    num_done = sum(len(c.token_ids) for output in done for c in output.outputs)
    num_aborted = sum(
        s.num_generation_tokens for s in totals.finished if s.finish_reason == "abort"
    )
    num_early_tokens = totals.num_generation_tokens - num_done - num_aborted
    assert num_early_tokens >= 0 if num_early else num_early_tokens == 0
    assert totals.num_prefix_hits <= totals.num_prefix_queries
    assert totals.num_prefix_hits > 0
    prompts = sum(len(output.prompt_token_ids) for output in done)
    assert prompts <= totals.num_prompt_tokens <= sum(len(wish.prompt) for wish in wishes)
    assert totals.num_cached_tokens >= sum(output.num_cached_tokens or 0 for output in done)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("budget", [16, 24, 64])
def test_c97_preemption_makes_progress_and_no_ping_pong(
    tiny: str, policy: str, budget: int
) -> None:
    """Prompts longer than a step among requests that grow: whoever is preempted waits until there
    is room again, so that each is preempted seldom and every few steps somebody gets a token."""
    rng = random.Random(budget)
    with SteppingEngine(
        tiny,
        max_model_len=WINDOW,
        num_gpu_blocks_override=NUM_BLOCKS + 1,
        block_size=BLOCK_SIZE,
        scheduling_policy=policy,
        max_num_batched_tokens=budget,
    ) as engine:
        lengths = [(10, 100), (100, 20), (10, 100), (90, 30), (10, 100)]
        for num_prompt, num_output in lengths:
            params = SamplingParams(temperature=0.0, max_tokens=num_output, ignore_eos=True)
            engine.add(rng.choices(range(256), k=num_prompt), params)
        num_tokens, idle = 0, 0
        while engine.step():
            got = engine.totals.num_generation_tokens
            idle = idle + 1 if got == num_tokens else 0
            assert idle <= 2 * WINDOW // budget  # a prompt may be computed, and computed again
            num_tokens = got
        assert num_tokens == sum(num_output for _, num_output in lengths)
        assert 0 < engine.totals.num_preemptions <= 2 * len(lengths)
        # work that was thrown away: less than that of one more window for each request
        useful = sum(map(sum, lengths))
        assert engine.totals.num_scheduled_tokens <= useful + len(lengths) * WINDOW


# -- a real server, SmolLM2 ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def cramped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with eight usable blocks, whose steps are shorter than its longest prompts."""
    log = tmp_path_factory.mktemp("cramped") / "log"
    flags = {
        "--num-gpu-blocks-override": NUM_BLOCKS + 1,
        "--scheduling-policy": "priority",
        "--max-num-batched-tokens": 64,
        "--max-num-seqs": 16,
    }
    with serving(log, *(str(part) for flag in flags.items() for part in flag)) as server:
        yield server


COUNTERS = (
    "prompt_tokens",
    "generation_tokens",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "num_preemptions",
)


def counters(server: Server) -> dict[str, float]:
    return {name: server.metric(f"vllm:{name}_total") for name in COUNTERS}


STORY = (
    "Once upon a time there was a little house at the edge of the wood, and in the house there "
    "lived an old man with his three sons and a dog that could count."
)


def random_body(rng: random.Random) -> dict[str, Any]:
    prompt = STORY[: rng.choice([0, 70, 150])] + f" {rng.randint(0, 99)} {rng.choice('abc')}"
    return {
        "prompt": prompt,
        "max_tokens": rng.choice([1, 6, 16]),
        "temperature": rng.choice([0, 1]),
        "seed": rng.randrange(1000),
        "n": rng.choice([1, 1, 2, 3]),
        "logprobs": rng.choice([None, 2]),
        "ignore_eos": True,
        "priority": rng.randint(0, 3),
    }


def ask(server: Server, body: dict[str, Any]) -> list[Any]:
    """The choices of a whole reply."""
    status, reply = server.post(COMPLETIONS, body)
    assert status == 200, reply
    choices: list[Any] = reply["choices"]
    assert reply["usage"]["completion_tokens"] == body["max_tokens"] * body["n"]
    return choices


def leave_early(server: Server, body: dict[str, Any]) -> None:
    with Stream(server, COMPLETIONS, body) as stream:
        assert stream.status == 200
        next(stream.events())


def test_a_server_with_eight_blocks_answers_as_one_with_many(cramped: Server, live: Server) -> None:
    rng = random.Random(8)
    bodies = [random_body(rng) for _ in range(NUM_REQUESTS)]
    leavers = set(rng.sample(range(NUM_REQUESTS), 12))
    before = counters(cramped)

    def client(number: int) -> list[Any] | None:
        if number in leavers:
            leave_early(cramped, {**bodies[number], "max_tokens": 60})
            return None
        return ask(cramped, bodies[number])

    with ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(client, range(NUM_REQUESTS)))
    wait_idle(cramped)
    grown = {name: value - before[name] for name, value in counters(cramped).items()}
    for body, answer in zip(bodies, answers, strict=True):
        if answer is not None:
            assert answer == ask(live, {**body, "priority": 0})
    stayed = [body for body, answer in zip(bodies, answers, strict=True) if answer is not None]
    assert grown["num_preemptions"] > 0
    assert grown["generation_tokens"] >= sum(body["max_tokens"] * body["n"] for body in stayed)
    assert 0 < grown["prefix_cache_hits"] <= grown["prefix_cache_queries"]


def test_c95_four_long_requests_in_eight_blocks(cramped: Server, live: Server) -> None:
    """Each could fill the whole cache."""
    before = counters(cramped)
    bodies: list[dict[str, Any]] = [
        {
            "prompt": f"{number} is the number of",
            "max_tokens": 60,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
            "n": 1,
        }
        for number in range(4)
    ]
    with ThreadPoolExecutor(4) as clients:
        answers = list(clients.map(lambda body: ask(cramped, body), bodies))
    wait_idle(cramped)
    grown = {name: value - before[name] for name, value in counters(cramped).items()}
    for body, (choice,) in zip(bodies, answers, strict=True):
        (alone,) = ask(live, body)
        assert choice["token_ids"] == alone["token_ids"]
        assert choice["text"] == alone["text"]
    assert grown["num_preemptions"] > 0
    assert grown["generation_tokens"] == 4 * 60
    assert grown["prompt_tokens"] == sum(len(c["prompt_token_ids"]) for (c,) in answers)
    streamed = chunks(cramped, COMPLETIONS, bodies[0])
    assert text_of(streamed) == answers[0][0]["text"]


def test_c97_a_prompt_longer_than_a_step_under_preemption(cramped: Server, live: Server) -> None:
    """Steps of 64 tokens, a prompt of 100: it is resumed in several steps, and must not take from
    those who then take from it, for ever."""
    rng = random.Random(97)
    before = counters(cramped)
    long = {
        "prompt": [rng.randrange(1000, 20000) for _ in range(100)],
        "max_tokens": 20,
        "temperature": 0,
        "ignore_eos": True,
        "n": 1,
        "return_token_ids": True,
    }
    short = [
        {**long, "prompt": [rng.randrange(1000, 20000) for _ in range(10)], "max_tokens": 60}
        for _ in range(3)
    ]
    bodies = [short[0], long, short[1], short[2]]
    with ThreadPoolExecutor(4) as clients:
        answers = list(clients.map(lambda body: ask(cramped, body), bodies))
    preemptions = counters(cramped)["num_preemptions"] - before["num_preemptions"]
    for body, (choice,) in zip(bodies, answers, strict=True):
        assert choice["token_ids"] == ask(live, body)[0]["token_ids"]
    assert 0 < preemptions <= 12  # of 200 tokens; who is preempted waits until there is room


@pytest.mark.parametrize("stream", [False, True])
def test_c98_a_request_larger_than_the_cache_is_refused_at_once(
    cramped: Server, stream: bool
) -> None:
    """The window is what the cache holds."""
    assert "The window is lowered from 8192 to 128 tokens" in cramped.log
    for body in (
        {"prompt": [5] * 129},
        {"prompt": [5] * 128},
        {"prompt": [5], "max_tokens": 129},
        {"prompt": [5] * 129, "max_tokens": 0, "echo": True},
    ):
        error = refused(cramped, COMPLETIONS, {**body, "stream": stream})
        assert "128" in error["message"]
    assert cramped.complete([5] * 127, max_tokens=8)["usage"]["completion_tokens"] == 1  # type: ignore[arg-type]
