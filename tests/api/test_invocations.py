"""`POST /invocations`: the body says which route is meant."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from octavo.config.server import ServerConfig
from tests.fakes.api import serving

CHAT = {"messages": [{"role": "user", "content": "abc"}]}
COMPLETION = {"prompt": "abc", "echo": True}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (CHAT, "/v1/chat/completions"),
        (COMPLETION, "/v1/completions"),
        ({**CHAT, "prompt": "x"}, "/v1/chat/completions"),
        ({**COMPLETION, "messages": None}, "/v1/completions"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_answers_are_those_of_the_route_that_is_meant(
    body: dict[str, Any], path: str, stream: bool
) -> None:
    async def main() -> None:
        async with serving() as api:
            invoked = await api.client.post("/invocations", {**body, "stream": stream})
            direct = await api.client.post(path, {**body, "stream": stream})
            assert invoked.status == direct.status == 200
            assert invoked.headers["content-type"] == direct.headers["content-type"]
            found, expected = (
                answer.chunks if stream else [answer.json] for answer in (invoked, direct)
            )
            for one, other in zip(found, expected, strict=True):
                assert one["object"] == other["object"]
                assert one["choices"] == other["choices"]

    asyncio.run(main())


@pytest.mark.parametrize("body", [{}, {"messages": None}, {"input": "x"}, {"model": "small"}])
def test_a_body_that_is_for_no_route_is_refused(body: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.post("/invocations", body)
            assert (answer.status, answer.error["param"]) == (400, "messages")
            assert "must have messages or prompt" in answer.error["message"]
            await api.is_alive()

    asyncio.run(main())


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b'{"prompt": NaN}'])
def test_a_body_that_is_none_is_refused(body: bytes) -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.post("/invocations", body)
            assert (answer.status, answer.error["param"]) == (400, "body")

    asyncio.run(main())


def test_mistakes_are_named_as_by_the_route_that_is_meant() -> None:
    async def main() -> None:
        async with serving() as api:
            invoked = await api.client.post("/invocations", {**CHAT, "top_k": 0.5})
            direct = await api.client.post("/v1/chat/completions", {**CHAT, "top_k": 0.5})
            assert invoked.error == direct.error

    asyncio.run(main())


def test_a_client_that_leaves_aborts_its_request() -> None:
    async def main() -> None:
        async with serving(ServerConfig(enable_server_load_tracking=True)) as api:
            api.core.hold()
            exchange = api.client.send("POST", "/invocations", {**CHAT, "stream": True})
            await api.core.has_running(1)
            assert (await api.client.get("/load")).json == {"server_load": 1}
            exchange.leave()
            await exchange.ended()
            assert api.core.num_running == 0
            assert (await api.client.get("/load")).json == {"server_load": 0}

    asyncio.run(main())
