"""AsyncLLM over a core in a real process, with a fake executor."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable

import pytest

from octavo.config.engine import SchedulerConfig
from octavo.errors import EngineDead, EngineError
from octavo.frontend.admission import AdmissionControl
from octavo.frontend.async_llm import AsyncLLM
from octavo.frontend.core_manager import CoreEngineProcManager
from octavo.frontend.input_processor import InputProcessor
from octavo.frontend.output_processor import OutputProcessor
from octavo.frontend.prompt import TokensPrompt
from octavo.frontend.zmq_client import ZmqCoreClient
from octavo.metrics.engine_metrics import EngineMetrics
from octavo.sampling_params import RequestOutputKind, SamplingParams
from tests.fakes.fake_core_main import TARGET
from tests.fakes.fake_executor import VOCAB_SIZE, solo_output
from tests.fakes.model_config import model_config
from tests.unit.frontend.test_core_manager import config


class Bench:
    def __init__(self, manager: CoreEngineProcManager) -> None:
        self.manager = manager
        self.client = ZmqCoreClient(manager)
        self.metrics = EngineMetrics(64)
        model = model_config(vocab_size=VOCAB_SIZE, eos_token_ids=[])
        self.llm = AsyncLLM(
            config=config(),
            tokenizer=None,
            core_client=self.client,
            input_processor=InputProcessor(model, None),
            output_processor=OutputProcessor(None),
            admission=AdmissionControl(SchedulerConfig()),
            recorders=[self.metrics],
        )

    async def finish(self, request_id: str, prompt: list[int], max_tokens: int) -> list[int]:
        params = SamplingParams(max_tokens=max_tokens, output_kind=RequestOutputKind.DELTA)
        stream = await self.llm.add_request(TokensPrompt(prompt), params, request_id)
        return [t async for o in stream for t in o.outputs[0].token_ids]


def run(test: Callable[[Bench], Awaitable[None]], trouble: str = "none") -> None:
    manager = CoreEngineProcManager(TARGET)
    try:
        manager.configure(config(trouble))
        ready = manager.ready.result(timeout=30)

        async def main() -> None:
            bench = Bench(manager)
            bench.llm.start(ready)
            try:
                await asyncio.wait_for(test(bench), 30)
            finally:
                await bench.llm.shutdown(10)

        asyncio.run(main())
    finally:
        manager.close()


def test_many_requests_at_once_get_each_its_own_tokens_and_the_core_ends_orderly() -> None:
    manager: list[CoreEngineProcManager] = []

    async def test(bench: Bench) -> None:
        manager.append(bench.manager)
        prompts = [[i + 1, 2, 3] for i in range(40)]
        results = await asyncio.gather(
            *(bench.finish(f"r{i}", prompt, 1 + i % 20) for i, prompt in enumerate(prompts))
        )
        for i, (prompt, tokens) in enumerate(zip(prompts, results, strict=True)):
            assert tokens == solo_output(prompt, 1 + i % 20)
        assert bench.llm.num_unfinished_requests == 0
        assert bench.metrics.num_finished["length"] == 40
        assert bench.metrics.scheduler.num_running_reqs == 0
        assert bench.metrics.scheduler.kv_cache_usage == 0
        assert bench.metrics.num_generation_tokens == sum(1 + i % 20 for i in range(40))

    run(test)
    assert manager[0].child.poll() == 0


def test_a_consumer_that_leaves_frees_the_core_at_once() -> None:
    async def test(bench: Bench) -> None:
        params = SamplingParams(max_tokens=None, output_kind=RequestOutputKind.DELTA)
        async with await bench.llm.add_request(TokensPrompt([1]), params, "r") as stream:
            await anext(stream)
        assert await bench.finish("s", [5], 2) == solo_output([5], 2)
        assert bench.metrics.scheduler.num_running_reqs == 0
        assert bench.metrics.scheduler.kv_cache_usage == 0

    run(test)


def test_calls_are_answered_or_refused() -> None:
    async def test(bench: Bench) -> None:
        assert await bench.client.call("ping") == "pong"
        assert await bench.llm.reset_prefix_cache() is True
        with pytest.raises(EngineError, match="no call 'nonsense'"):
            await bench.client.call("nonsense")

    run(test)


def test_a_step_that_fails_ends_requests_with_the_cores_last_words() -> None:
    async def test(bench: Bench) -> None:
        with pytest.raises(EngineDead, match=r"cannot go on: .*The fake model cannot step"):
            await bench.finish("r", [1], 3)
        assert "cannot step" in await bench.llm.wait_dead()
        with pytest.raises(EngineDead, match="cannot step"):
            await bench.client.call("ping")

    run(test, "fail-step")


def test_a_killed_core_ends_requests_and_calls_with_the_signal() -> None:
    async def test(bench: Bench) -> None:
        request = asyncio.create_task(bench.finish("r", [1], 3))
        while not bench.llm.num_unfinished_requests:
            await asyncio.sleep(0)
        call = asyncio.create_task(bench.client.call("ping"))
        started_s = time.monotonic()
        os.kill(bench.manager.child.pid, signal.SIGKILL)
        with pytest.raises(EngineDead, match=r"is gone: EngineCore .* SIGKILL"):
            await request
        with pytest.raises(EngineDead, match="SIGKILL"):
            await call
        assert time.monotonic() - started_s < 2.0
        assert not bench.llm.is_running

    run(test, "hang-step")


def test_a_core_that_hangs_is_not_waited_for_longer_than_asked() -> None:
    async def test(bench: Bench) -> None:
        os.kill(bench.manager.child.pid, signal.SIGSTOP)
        params = SamplingParams(output_kind=RequestOutputKind.DELTA)
        stream = await bench.llm.add_request(TokensPrompt([1]), params, "r")
        await bench.llm.shutdown(0.05)
        assert bench.manager.child.poll() is None
        with pytest.raises(EngineDead, match="shut down"):
            await anext(stream)

    run(test)
