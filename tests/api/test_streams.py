"""Streams that end early: clients that leave, requests that fail, engines that die."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from octavo.config.server import ServerConfig
from octavo.errors import InvalidParameter
from tests.fakes.api import Api, serving
from tests.fakes.byte_tokenizer import EOS
from tests.fakes.fake_async_llm import saying

CHAT = "/v1/chat/completions"


def body(stream: bool, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "x"}], "stream": stream, **fields}


async def is_idle(api: Api) -> None:
    assert api.llm.num_unfinished_requests == 0
    assert api.core.num_running == 0
    await api.is_alive()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("num_steps", [0, 2])
@pytest.mark.parametrize("n", [1, 3])
def test_c100_a_client_that_leaves_aborts_its_request(stream: bool, num_steps: int, n: int) -> None:
    async def main() -> None:
        async with serving(script=saying("abcdef")) as api:
            api.core.hold()
            request = api.client.send("POST", CHAT, body(stream, n=n))
            if stream and num_steps:
                api.core.step(num_steps)
                await request.has_writes(num_steps)
            else:
                await api.core.has_running(n)
            assert api.core.num_running == n
            request.leave()
            request.leave()
            await request.ended()
            assert not request.is_complete
            assert len(api.core.aborted) == n
            api.core.release()
            await is_idle(api)

    asyncio.run(main())


def test_c100_a_client_that_leaves_several_prompts_aborts_all() -> None:
    async def main() -> None:
        async with serving() as api:
            api.core.hold()
            request = api.client.send(
                "POST", "/v1/completions", {"prompt": ["a", "b", "c"], "stream": True}
            )
            await api.core.has_running(3)
            request.leave()
            await request.ended()
            assert api.core.num_running == 0
            api.core.release()
            await is_idle(api)

    asyncio.run(main())


def test_c100_abort_storm() -> None:
    async def main() -> None:
        rng = random.Random(1)
        async with serving(script=saying("abcdefghij" * 3)) as api:
            requests = []
            for _ in range(1000):
                request = api.client.send("POST", CHAT, body(rng.random() < 0.5))
                requests.append(request)
                if rng.random() < 0.7:
                    asyncio.get_running_loop().call_later(rng.random() * 0.3, request.leave)
            for request in requests:
                await request.ended()
            complete = [r for r in requests if r.is_complete]
            assert {r.status for r in complete} == {200}
            for r in complete:
                if r.headers["content-type"].startswith("text/event-stream"):
                    assert b"".join(r.writes).count(b"data: [DONE]") == 1
            await is_idle(api)

    asyncio.run(main())


def test_a_client_that_leaves_before_its_body_is_complete_costs_nothing() -> None:
    async def main() -> None:
        async with serving() as api:
            request = api.client.send("POST", CHAT, body(True), pieces=3, never_ends=True)
            request.leave()
            await request.ended()
            assert request.status is None
            assert api.core.added == []
            await is_idle(api)

    asyncio.run(main())


def test_each_step_is_one_write_with_role_first() -> None:
    async def main() -> None:
        async with serving(script=saying("abc")) as api:
            api.core.hold()
            request = api.client.send("POST", CHAT, body(True, n=2))
            await api.core.has_running(2)
            assert request.status is None  # nothing is sent before the first output
            for step in range(1, 4):
                api.core.step()
                await request.has_writes(step)
                assert len(request.writes) == step
            assert b'"role":"assistant"' in request.writes[0]
            api.core.release()
            answer = await request.answer()
            assert answer.events[-1] == "[DONE]"

    asyncio.run(main())


def test_c43_every_stream_has_one_done() -> None:
    async def main() -> None:
        rng = random.Random(2)
        async with serving(script=lambda _: [65] * rng.randrange(20) + [EOS]) as api:
            for _ in range(500):
                assert (await api.client.chat(stream=True)).chunks

    asyncio.run(main())


@pytest.mark.parametrize("stream", [True, False])
def test_c14_one_failed_request_is_500_and_others_finish(stream: bool) -> None:
    async def main() -> None:
        async with serving() as api:
            api.core.errors["failing"] = "The step failed."
            requests = [
                api.client.send("POST", CHAT, body(stream, request_id=name))
                for name in ("good-1", "failing", "good-2")
            ]
            answers = [await r.answer() for r in requests]
            assert [a.status for a in answers] == [200, 500, 200]
            assert answers[1].error["message"] == "The step failed."
            assert (await api.client.get("/health")).status == 200
            await is_idle(api)

    asyncio.run(main())


@pytest.mark.parametrize("stream", [True, False])
def test_c13_a_mistake_found_late_is_400_with_its_text(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with serving() as api:

            def refuse(*args: Any, **kwargs: Any) -> Any:
                raise InvalidParameter("Found late.", param="seed")

            with monkeypatch.context() as patch:
                patch.setattr(api.llm._output, "add_request", refuse)
                answer = await api.client.chat(stream=stream)
            assert answer.status == 400
            assert (answer.error["message"], answer.error["param"]) == ("Found late.", "seed")
            await is_idle(api)

    asyncio.run(main())


def test_a_failure_after_the_start_is_an_event_then_done() -> None:
    async def main() -> None:
        async with serving(script=saying("abcdef")) as api:
            api.core.hold()
            request = api.client.send("POST", CHAT, body(True))
            await api.core.has_running(1)
            api.core.step(2)
            await request.has_writes(2)
            api.core.die("The core was killed.")
            answer = await request.answer()
            assert answer.status == 200
            assert answer.events[-1] == "[DONE]"
            error = json.loads(answer.events[-2])["error"]
            assert error["message"] == "The core was killed."
            assert error["code"] == 500
            assert answer.events.count("[DONE]") == 1

    asyncio.run(main())


@pytest.mark.parametrize("stream", [True, False])
def test_a_dead_engine_is_500_with_the_cause(stream: bool) -> None:
    async def main() -> None:
        async with serving() as api:
            api.core.hold()
            request = api.client.send("POST", CHAT, body(stream))
            await api.core.has_running(1)
            api.core.die("The core was killed.")
            answer = await request.answer()
            assert answer.status == 500
            assert answer.error["message"] == "The core was killed."
            assert (await api.client.chat(stream=stream)).status == 500

    asyncio.run(main())


def test_drain_ends_running_streams_with_an_error_at_the_limit() -> None:
    async def main() -> None:
        async with serving(script=saying("abcdef")) as api:
            api.core.hold()
            request = api.client.send("POST", CHAT, body(True))
            await api.core.has_running(1)
            api.core.step()
            await request.has_writes(1)
            assert not await api.llm.drain(0.01)
            answer = await request.answer()
            assert "shutting down" in json.loads(answer.events[-2])["error"]["message"]
            assert answer.events[-1] == "[DONE]"

    asyncio.run(main())


@pytest.mark.parametrize("prompt", ["a", ["a", "b"]])
def test_silent_streams_get_keep_alive_comments(prompt: Any) -> None:
    async def main() -> None:
        async with serving(ServerConfig(sse_keep_alive_interval_s=0.01)) as api:
            api.core.hold()
            request = api.client.send("POST", "/v1/completions", {"prompt": prompt, "stream": True})
            await request.has_writes(2)
            assert set(request.writes) == {b": keep-alive\n\n"}
            api.core.release()
            answer = await request.answer()
            assert answer.chunks

    asyncio.run(main())


def test_usage_after_an_abort_of_another_client_is_right() -> None:
    async def main() -> None:
        async with serving(script=saying("abc")) as api:
            api.core.hold()
            leaving = api.client.send("POST", CHAT, body(True))
            staying = api.client.send(
                "POST", CHAT, body(True, stream_options={"include_usage": True})
            )
            await api.core.has_running(2)
            api.core.step()
            await staying.has_writes(1)
            leaving.leave()
            await leaving.ended()
            api.core.release()
            assert (await staying.answer()).chunks[-1]["usage"]["completion_tokens"] == 4

    asyncio.run(main())


@pytest.mark.parametrize("route", ["chat", "complete"])
@pytest.mark.parametrize("stream", [False, True])
def test_c13_what_the_core_finds_wrong_is_a_400_with_its_words(route: str, stream: bool) -> None:
    """Found late, but before anything was sent: a plain 400, also for a stream."""

    async def main() -> None:
        async with serving() as api:
            api.core.errors["failing"] = "top_z=7 is too much for this model."
            api.core.are_request_errors = True
            ask = getattr(api.client, route)
            answer = await ask("x", request_id="failing", stream=stream)
            assert answer.status == 400
            assert answer.error["message"] == "top_z=7 is too much for this model."
            assert answer.error["type"] == "BadRequestError"
            await api.is_alive()

    asyncio.run(main())
