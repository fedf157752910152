"""Tokens that are sent without waking the request's task (`DirectWriter`)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.config.server import ServerConfig
from tests.fakes.api import serving
from tests.fakes.asgi_client import Exchange, split_events
from tests.fakes.fake_async_llm import saying

TEXT = "abcdefghijklmnop"
BODY = {"model": "small", "prompt": "x", "max_tokens": 100, "stream": True}


def text_of(request: Exchange) -> str:
    chunks = [json.loads(e) for e in split_events(b"".join(request.writes)) if e != "[DONE]"]
    return "".join(chunk["choices"][0]["text"] for chunk in chunks)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["step", "turns", "turns", "pause", "resume"]), max_size=60))
def test_what_a_client_gets_does_not_depend_on_when_it_reads(actions: list[str]) -> None:
    async def main() -> None:
        async with serving(script=saying(TEXT)) as api:
            api.core.hold()
            request = api.client.send("POST", "/v1/completions", BODY)
            await api.core.has_running(1)
            for action in actions:
                if action == "step":
                    api.core.step()
                elif action == "turns":
                    for _ in range(4):
                        await asyncio.sleep(0)
                else:
                    getattr(request, action)()
            request.resume()
            api.core.release()
            answer = await request.answer()
            assert answer.events[-1] == "[DONE]"
            assert text_of(request) == TEXT

    asyncio.run(main())


@pytest.mark.parametrize(
    "fields", [{}, {"logprobs": 1}, {"stream_options": {"include_usage": True}}]
)
def test_all_tokens_but_the_first_and_the_last_are_sent_directly(fields: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving(script=saying(TEXT)) as api:
            api.core.hold()
            request = api.client.send("POST", "/v1/completions", {**BODY, **fields})
            await api.core.has_running(1)
            for number in range(1, len(TEXT) + 1):
                api.core.step()
                await request.has_writes(number)
            api.core.release()
            await request.ended()
            assert request.num_direct_writes == len(TEXT) - 1
            assert len(request.writes) == len(TEXT) + 2  # the finish reason, [DONE]

    asyncio.run(main())


class SeesBody:
    """A middleware that changes what it sees."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def shout(message: Any) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": message["body"].upper()}
            await send(message)

        await self._app(scope, receive, shout)


def test_a_middleware_sees_every_byte() -> None:
    async def main() -> None:
        config = ServerConfig(middleware=[f"{__name__}.SeesBody"])
        async with serving(config, script=saying(TEXT)) as api:
            answer = await api.client.send("POST", "/v1/completions", BODY).answer()
            assert answer.body == answer.body.upper()

    asyncio.run(main())


def test_a_failure_while_a_token_is_sent_ends_that_stream_with_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with serving(script=saying(TEXT)) as api:
            api.core.hold()
            request = api.client.send("POST", "/v1/completions", BODY)
            await api.core.has_running(1)
            api.core.step()
            await request.has_writes(1)

            def write(body: bytes) -> None:
                raise RuntimeError("planted")

            request.write = write  # type: ignore[method-assign]
            api.core.step()
            await request.ended()
            error = json.loads((await request.answer()).events[-2])["error"]
            assert error["code"] == 500
            assert api.core.num_running == 0
            api.core.release()
            await api.is_alive()

    asyncio.run(main())
