from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from octavo.errors import EngineDead
from octavo.frontend import request_stream
from octavo.frontend.request_stream import RequestStream
from octavo.outputs import CompletionOutput, Logprob, RequestOutput
from octavo.sampling_params import RequestOutputKind


def output(
    text: str, finish: str | None = None, *, index: int = 0, finished: bool | None = None
) -> RequestOutput:
    completion = CompletionOutput(index, text, [ord(c) for c in text], finish_reason=finish)
    return RequestOutput(
        "r", None, [1], [completion], finish is not None if finished is None else finished
    )


def run(
    test: Callable[[RequestStream, list[str]], Awaitable[None]],
    kind: RequestOutputKind = RequestOutputKind.DELTA,
) -> list[str]:
    left: list[str] = []

    async def main() -> None:
        await test(RequestStream("r", [1], kind, left.append), left)

    asyncio.run(main())
    return left


def test_outputs_come_in_order_and_then_the_end() -> None:
    async def test(stream: RequestStream, left: list[str]) -> None:
        async def produce() -> None:
            for text in "abc":
                stream.put(output(text))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            stream.put(output("d", "stop"))

        producer = asyncio.create_task(produce())
        assert "".join([o.outputs[0].text async for o in stream]) == "abcd"
        await producer

    assert run(test) == []


def test_a_slow_consumer_gets_what_came_meanwhile_as_one_delta() -> None:
    async def test(stream: RequestStream, left: list[str]) -> None:
        first = output("a")
        first.outputs[0].logprobs = [{97: Logprob(-1.0)}]
        second = output("b")
        second.outputs[0].logprobs = [{98: Logprob(-2.0)}]
        stream.put(first)
        stream.put(second)
        stream.put(output("x", index=1))
        stream.put(output("c", "length"))
        merged = await anext(stream)
        assert merged.finished
        by_index = {c.index: c for c in merged.outputs}
        assert (by_index[0].text, by_index[1].text) == ("abc", "x")
        assert by_index[0].token_ids == [97, 98, 99]
        assert by_index[0].logprobs == [{97: Logprob(-1.0)}, {98: Logprob(-2.0)}]
        assert by_index[0].finish_reason == "length"
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run(test)


def test_a_slow_consumer_gets_the_latest_of_cumulative_outputs() -> None:
    async def test(stream: RequestStream, left: list[str]) -> None:
        stream.put(output("a"))
        stream.put(output("ab"))
        assert (await anext(stream)).outputs[0].text == "ab"

    run(test, RequestOutputKind.CUMULATIVE)


def test_the_error_comes_after_what_was_put_before_it() -> None:
    async def test(stream: RequestStream, left: list[str]) -> None:
        stream.put(output("a"))
        stream.fail(EngineDead("gone"))
        assert (await anext(stream)).outputs[0].text == "a"
        with pytest.raises(EngineDead, match="gone"):
            await anext(stream)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    assert run(test) == []


def test_leaving_early_aborts_once() -> None:
    async def test(stream: RequestStream, left: list[str]) -> None:
        stream.put(output("a"))
        async with stream:
            await anext(stream)
            assert left == []
        assert left == ["r"]
        await stream.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    assert run(test) == ["r"]


def test_leaving_after_the_end_aborts_nothing() -> None:
    async def test(stream: RequestStream, left: list[str]) -> None:
        stream.put(output("a", "stop"))
        await stream.aclose()

    assert run(test) == []


def test_cancelling_a_waiting_consumer_aborts() -> None:
    async def test(stream: RequestStream, left: list[str]) -> None:
        consumer = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        consumer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consumer

    assert run(test) == ["r"]


def test_next_within_gives_none_when_nothing_comes_and_loses_nothing() -> None:
    async def test(stream: RequestStream, left: list[str]) -> None:
        assert await stream.next_within(0.001) is None
        asyncio.get_running_loop().call_soon(stream.put, output("a"))
        found = await stream.next_within(10)
        assert found is not None
        assert found.outputs[0].text == "a"
        stream.put(output("b", "stop"))
        assert await stream.next_within(0) is not None
        with pytest.raises(StopAsyncIteration):
            await stream.next_within(10)

    assert run(test) == []


def test_cancelling_next_within_aborts() -> None:
    async def test(stream: RequestStream, left: list[str]) -> None:
        consumer = asyncio.ensure_future(stream.next_within(100))
        await asyncio.sleep(0)
        consumer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consumer

    assert run(test) == ["r"]


def test_closing_wakes_a_consumer_that_waits() -> None:
    async def test(stream: RequestStream, left: list[str]) -> None:
        consumer = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        await stream.aclose()
        with pytest.raises(StopAsyncIteration):
            await consumer

    assert run(test) == ["r"]


def test_outputs_are_offered_first_but_never_out_of_order() -> None:
    async def test(stream: RequestStream, left: list[str]) -> None:
        taken: list[str] = []
        is_free = True

        def take(new: RequestOutput) -> bool:
            if is_free:
                taken.append(new.outputs[0].text)
            return is_free

        stream.offer_to(take)
        stream.put(output("a"))
        is_free = False
        stream.put(output("b"))
        is_free = True
        stream.put(output("c"))  # b waits to be read
        assert (await anext(stream)).outputs[0].text == "bc"
        stream.put(output("d"))
        stream.put(output("e", "stop"))  # the last one is always read
        assert (await anext(stream)).outputs[0].text == "e"
        assert taken == ["a", "d"]

    assert run(test) == []


def test_a_stream_is_not_silent_while_outputs_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(request_stream, "monotonic", lambda: now_s)

    async def test(stream: RequestStream, left: list[str]) -> None:
        nonlocal now_s
        stream.offer_to(lambda new: True)
        consumer = asyncio.ensure_future(stream.next_within(0.01))
        await asyncio.sleep(0)
        now_s = 0.009
        stream.put(output("a"))
        now_s = 0.018  # silent for 0.009 s
        done, _ = await asyncio.wait([consumer], timeout=0.05)
        assert not done
        now_s = 0.019
        assert await consumer is None

    run(test)
