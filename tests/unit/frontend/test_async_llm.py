from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from octavo.config.engine import SchedulerConfig
from octavo.errors import (
    EngineDead,
    GenerationFailed,
    InvalidParameter,
    NotReady,
    Overloaded,
)
from octavo.frontend.admission import AdmissionControl
from octavo.frontend.async_llm import AsyncLLM
from octavo.frontend.input_processor import MAX_TEXT_CHARACTERS, InputProcessor
from octavo.frontend.output_processor import OutputProcessor
from octavo.frontend.prompt import TextPrompt, TokensPrompt
from octavo.messages.engine import FinishReason, SchedulerStats
from octavo.metrics.stats import IterationStats
from octavo.sampling_params import RequestOutputKind, SamplingParams
from tests.fakes.byte_tokenizer import BOS, ByteTokenizer
from tests.fakes.engine_config import engine_config
from tests.fakes.fake_core_client import READY, FakeCoreClient
from tests.fakes.model_config import model_config

PROMPT = TokensPrompt([1, 2, 3])


class Recorder:
    def __init__(self) -> None:
        self.finish_reasons: list[str] = []

    def record(self, scheduler: SchedulerStats | None, iteration: IterationStats) -> None:
        self.finish_reasons += [f.finish_reason for f in iteration.finished]


class Bench:
    """An AsyncLLM over a core that the test plays."""

    def __init__(self, *, window: int = 64, **limits: int) -> None:
        self.now_s = 0.0
        self.core = FakeCoreClient()
        self.tokenizer: Any = ByteTokenizer()
        self.recorder = Recorder()
        self.llm = AsyncLLM(
            config=engine_config(),
            tokenizer=self.tokenizer,
            core_client=self.core,
            input_processor=InputProcessor(model_config(max_model_len=window), self.tokenizer),
            output_processor=OutputProcessor(self.tokenizer),
            admission=AdmissionControl(SchedulerConfig(**limits)),
            recorders=[self.recorder],
            clock=lambda: self.now_s,
        )


def params(**fields: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 8, "output_kind": RequestOutputKind.DELTA, **fields})


def run(test: Callable[[Bench], Awaitable[None]], *, starts: bool = True, **limits: int) -> None:
    async def main() -> None:
        bench = Bench(**limits)
        if starts:
            bench.llm.start(READY)
        await test(bench)
        await bench.llm.shutdown()
        assert bench.core.is_closed

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    """Lets the event loop run until something that is on its way has happened."""
    for _ in range(100):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not happen")


def test_a_request_goes_to_the_core_and_its_text_comes_back() -> None:
    async def test(bench: Bench) -> None:
        stream = await bench.llm.add_request(TextPrompt("hi"), params(), "r")
        assert stream.prompt_token_ids == [BOS, 104, 105]
        (sent,) = bench.core.added
        assert (sent.request_id, sent.prompt_token_ids) == ("r", [BOS, 104, 105])
        bench.core.say_tokens("r", b"a")
        bench.core.say_tokens("r", b"b", FinishReason.LENGTH)
        outputs = [o async for o in stream]
        assert "".join(o.outputs[0].text for o in outputs) == "ab"
        assert outputs[-1].finished
        assert bench.llm.num_unfinished_requests == 0
        assert bench.recorder.finish_reasons == ["length"]

    run(test)


def test_a_bad_request_is_refused_before_anything_is_sent() -> None:
    async def test(bench: Bench) -> None:
        with pytest.raises(InvalidParameter):
            await bench.llm.add_request(TokensPrompt([-1]), params(), "r")
        assert bench.core.added == []
        assert bench.llm.num_unfinished_requests == 0

    run(test)


def test_generate_is_the_same_as_one_iterator() -> None:
    async def test(bench: Bench) -> None:
        texts = []
        async for output in bench.llm.generate(PROMPT, params(), "r"):
            texts.append(output.outputs[0].text)
            bench.core.say_tokens("r", b"b", FinishReason.LENGTH)
        assert texts == ["a", "b"]

    async def with_first_token(bench: Bench) -> None:
        asyncio.get_running_loop().call_soon(bench.core.say_tokens, "r", b"a")
        await test(bench)

    run(with_first_token)


def test_cancelling_the_consumer_aborts_in_the_core() -> None:
    async def test(bench: Bench) -> None:
        async def consume() -> None:
            async for _ in bench.llm.generate(PROMPT, params(), "r"):
                pass

        consumer = asyncio.create_task(consume())
        await until(lambda: bool(bench.core.added))
        consumer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consumer
        assert bench.core.aborted == ["r"]
        assert bench.llm.num_unfinished_requests == 0
        assert bench.recorder.finish_reasons == ["abort"]
        bench.core.say_tokens("r", b"late")  # on its way: must do no harm
        bench.core.say_tokens("r", b"later", FinishReason.ABORT)
        await until(bench.core.is_silent)

    run(test)


def test_leaving_n_outputs_aborts_those_that_run() -> None:
    async def test(bench: Bench) -> None:
        async with await bench.llm.add_request(PROMPT, params(n=3), "r") as stream:
            bench.core.say_tokens("1_r", b"a", FinishReason.LENGTH)
            await anext(stream)
        assert bench.core.aborted == ["0_r", "2_r"]

    run(test)


def test_a_stop_string_is_aborted_in_the_core() -> None:
    async def test(bench: Bench) -> None:
        stream = await bench.llm.add_request(PROMPT, params(stop=["c"]), "r")
        bench.core.say_tokens("r", b"bcd")
        (only,) = [o async for o in stream]
        assert (only.outputs[0].text, only.outputs[0].stop_reason) == ("b", "c")
        assert bench.core.aborted == ["r"]

    run(test)


def test_abort_by_id_ends_the_callers_stream() -> None:
    async def test(bench: Bench) -> None:
        stream = await bench.llm.add_request(PROMPT, params(), "r")
        await bench.llm.abort("r")
        await bench.llm.abort("r")
        await bench.llm.abort("unknown")
        (only,) = [o async for o in stream]
        assert only.outputs[0].finish_reason == "abort"
        assert bench.core.aborted == ["r"]

    run(test)


def test_a_dead_core_fails_running_and_new_requests_with_the_reason() -> None:
    async def test(bench: Bench) -> None:
        stream = await bench.llm.add_request(PROMPT, params(), "r")
        waiter = asyncio.create_task(bench.llm.wait_dead())
        assert bench.llm.is_running
        bench.core.die("EngineCore was killed (SIGKILL).")
        with pytest.raises(EngineDead, match="SIGKILL"):
            await anext(stream)
        assert await waiter == "EngineCore was killed (SIGKILL)."
        assert not bench.llm.is_running
        assert bench.llm.dead_reason == "EngineCore was killed (SIGKILL)."
        with pytest.raises(EngineDead, match="SIGKILL"):
            await bench.llm.add_request(PROMPT, params(), "s")
        with pytest.raises(EngineDead, match="SIGKILL"):
            await bench.llm.reset_prefix_cache()
        await stream.aclose()
        assert bench.core.aborted == []

    run(test)


def test_before_the_core_is_ready_requests_are_refused() -> None:
    async def test(bench: Bench) -> None:
        assert not bench.llm.is_running
        with pytest.raises(NotReady, match="starting"):
            await bench.llm.add_request(PROMPT, params(), "r")

    run(test, starts=False)


def test_the_window_of_the_ready_core_counts() -> None:
    async def test(bench: Bench) -> None:
        assert bench.llm.max_model_len == READY.max_model_len

    run(test, window=4096)


def test_the_request_limit_counts_each_of_n() -> None:
    async def test(bench: Bench) -> None:
        await bench.llm.add_request(PROMPT, params(n=3), "r")
        with pytest.raises(Overloaded, match="max_num_queued_reqs=4") as caught:
            await bench.llm.add_request(PROMPT, params(n=2), "s")
        assert caught.value.retry_after_s >= 1
        await bench.llm.add_request(PROMPT, params(), "t")
        with pytest.raises(Overloaded):
            await bench.llm.add_request(PROMPT, params(), "u")
        await bench.llm.abort("t")
        await bench.llm.add_request(PROMPT, params(), "u")

    run(test, max_num_queued_reqs=4)


def test_the_token_limit_counts_prompts_in_prefill() -> None:
    async def test(bench: Bench) -> None:
        await bench.llm.add_request(TokensPrompt([1] * 12), params(), "r")  # alone: any prompt
        with pytest.raises(Overloaded, match="max_num_queued_tokens=10"):
            await bench.llm.add_request(PROMPT, params(), "s")
        bench.core.say_tokens("r", b"a")
        await until(bench.core.is_silent)
        await bench.llm.add_request(PROMPT, params(), "s")

    run(test, max_num_queued_tokens=10)


def test_a_text_of_any_length_is_not_tokenised_at_once() -> None:
    async def test(bench: Bench) -> None:
        with pytest.raises(InvalidParameter, match="in pieces"):
            await bench.llm.tokenize("x" * (MAX_TEXT_CHARACTERS + 1))
        assert bench.tokenizer.num_encoded == 0

    run(test)


def test_a_core_with_work_that_says_nothing_is_stalled() -> None:
    async def test(bench: Bench) -> None:
        bench.now_s = 1000.0
        assert not bench.llm.is_stalled()  # idle
        await bench.llm.add_request(PROMPT, params(), "r")
        bench.now_s = 1030.0
        assert not bench.llm.is_stalled()
        bench.now_s = 1030.1
        assert bench.llm.is_stalled()
        bench.core.say_tokens("r", b"a")
        await until(bench.core.is_silent)
        assert not bench.llm.is_stalled()

    run(test)


def test_drain_refuses_new_requests_and_waits_for_running_ones() -> None:
    async def test(bench: Bench) -> None:
        stream = await bench.llm.add_request(PROMPT, params(), "r")
        drain = asyncio.create_task(bench.llm.drain(60))
        await until(lambda: bench.llm.is_draining)
        with pytest.raises(NotReady, match="shutting down"):
            await bench.llm.add_request(PROMPT, params(), "s")
        bench.core.say_tokens("r", b"a", FinishReason.LENGTH)
        assert await drain
        assert (await anext(stream)).finished

    run(test)


def test_drain_ends_what_is_left_at_the_limit() -> None:
    async def test(bench: Bench) -> None:
        stream = await bench.llm.add_request(PROMPT, params(n=2), "r")
        assert not await bench.llm.drain(0.001)
        with pytest.raises(GenerationFailed, match="shutting down"):
            await anext(stream)
        assert bench.core.aborted == ["0_r", "1_r"]

    run(test)


def test_drain_of_an_idle_engine_ends_at_once() -> None:
    async def test(bench: Bench) -> None:
        assert await bench.llm.drain(60)

    run(test)


def test_shutdown_fails_what_is_left() -> None:
    async def test(bench: Bench) -> None:
        stream = await bench.llm.add_request(PROMPT, params(), "r")
        await bench.llm.shutdown()
        with pytest.raises(EngineDead, match="shut down"):
            await anext(stream)

    run(test)


def test_long_texts_are_tokenised_off_the_event_loop() -> None:
    threads: list[str] = []

    async def test(bench: Bench) -> None:
        encode = bench.tokenizer.encode

        def spy(text: str, add_special_tokens: bool = True) -> list[int]:
            threads.append(threading.current_thread().name)
            return [1] if len(text) > 1000 else encode(text, add_special_tokens)

        bench.tokenizer.encode = spy
        stream = await bench.llm.add_request(TextPrompt("x" * 5000), params(), "r")
        assert stream.prompt_token_ids == [1]
        assert await bench.llm.tokenize("y" * 5000) == [1]
        assert await bench.llm.tokenize("y", add_special_tokens=False) == [121]

    run(test)
    names = [t.rpartition("_")[0] for t in threads[:2]]
    assert names == ["octavo-prompts", "octavo-tokenize"]  # neither waits for the other
    assert threads[2] == threading.current_thread().name


def test_a_request_that_cannot_be_sent_is_forgotten() -> None:
    async def test(bench: Bench) -> None:
        def fail(requests: object) -> None:
            raise OverflowError

        bench.core.add_requests = fail  # type: ignore[method-assign]
        with pytest.raises(OverflowError):
            await bench.llm.add_request(PROMPT, params(n=2), "r")
        assert bench.llm.num_unfinished_requests == 0

    run(test)


def test_reset_prefix_cache_asks_the_core() -> None:
    async def test(bench: Bench) -> None:
        assert await bench.llm.reset_prefix_cache()
        assert await bench.llm.reset_prefix_cache(preempt_running=True)
        assert bench.core.calls == [
            ("reset_prefix_cache", (False,)),
            ("reset_prefix_cache", (True,)),
        ]

    run(test)


def test_a_storm_of_aborts_leaves_nothing_behind() -> None:
    async def test(bench: Bench) -> None:
        streams = [await bench.llm.add_request(PROMPT, params(), f"r{i}") for i in range(1000)]
        for i, stream in enumerate(streams):
            bench.core.say_tokens(f"r{i}", b"a")
            await stream.aclose()
            await stream.aclose()
        await until(bench.core.is_silent)
        assert sorted(bench.core.aborted) == sorted(f"r{i}" for i in range(1000))
        assert bench.llm.num_unfinished_requests == 0

    run(test)
