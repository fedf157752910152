"""uvicorn on a real socket: take-over, signals, death, disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from octavo.api.listener import bind, tls_context
from octavo.api.parsing.factory import ReplyParsers
from octavo.api.server import serve
from octavo.api.starting import StartingResponder
from octavo.config.server import ServerConfig
from octavo.errors import EngineDead, StartupError
from tests.fakes.api import Api, serving
from tests.fakes.fake_async_llm import Script, reversed_prompt, saying
from tests.fakes.http_socket import Connection

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}


@contextlib.asynccontextmanager
async def running(
    script: Script = reversed_prompt,
    *,
    start: bool = True,
    parsers: ReplyParsers | None = None,
    **config: Any,
) -> AsyncIterator[tuple[Api, Any, asyncio.Task[None]]]:
    """A served application, its address and the task that serves it."""
    server = ServerConfig(**{"host": "127.0.0.1", "port": 0, **config})
    listener = bind(server)
    address = listener.getsockname()
    is_ready = asyncio.Event()
    async with serving(server, script=script, start=start, parsers=parsers) as api:
        task = asyncio.create_task(serve(api.app, listener, api.llm, server, on_ready=is_ready.set))
        ready = asyncio.create_task(is_ready.wait())
        await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
        try:
            yield api, address, task
        finally:
            if not task.done():
                os.kill(os.getpid(), signal.SIGTERM)
                api.core.release()
            async with asyncio.timeout(10):
                with contextlib.suppress(EngineDead):
                    await task


async def get(address: Any, path: str) -> int:
    async with await Connection.open(address) as client:
        return (await client.request("GET", path)).status


def test_a_chat_over_a_real_connection_that_stays_open() -> None:
    async def main() -> None:
        async with (
            running(saying("hello")) as (_, address, _),
            await Connection.open(address) as client,
        ):
            for _ in range(3):
                answer = await client.request("POST", CHAT, BODY)
                assert answer.json["choices"][0]["message"]["content"] == "hello"
                streamed = await client.request("POST", CHAT, {**BODY, "stream": True})
                assert streamed.body.endswith(b"data: [DONE]\n\n")

    asyncio.run(main())


@pytest.mark.parametrize("stream", [True, False])
def test_c100_a_closed_connection_aborts_within_milliseconds(stream: bool) -> None:
    async def main() -> None:
        async with running(saying("abc")) as (api, address, _):
            api.core.hold()
            client = await Connection.open(address)
            await client.send("POST", CHAT, {**BODY, "stream": stream})
            await api.core.has_running(1)
            if stream:
                api.core.step()
                await client.head()
            start = time.perf_counter()
            await client.close()
            async with asyncio.timeout(5):
                while api.core.num_running:
                    await asyncio.sleep(0)
            assert time.perf_counter() - start < 0.5
            api.core.release()

    asyncio.run(main())


def test_c106_sigterm_drains_running_streams_and_refuses_new_requests() -> None:
    async def main() -> None:
        async with running(saying("abc")) as (api, address, task):
            api.core.hold()
            async with (
                await Connection.open(address) as client,
                await Connection.open(address) as other,
            ):
                await client.send("POST", CHAT, {**BODY, "stream": True})
                await api.core.has_running(1)
                api.core.step()
                await client.head()
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(0)
                assert (await other.request("GET", "/ready")).status == 503
                assert (await other.request("GET", "/live")).status == 200
                assert (await other.request("GET", "/health")).status == 200
                refused = await other.request("POST", CHAT, BODY)
                assert refused.status == 503
                assert refused.headers["retry-after"] == "1"
                api.core.release()
                body = b"".join([chunk async for chunk in client.chunks()])
                assert body.endswith(b"data: [DONE]\n\n")
                assert b'"finish_reason":"stop"' in body
                async with asyncio.timeout(5):
                    await task
            with pytest.raises(ConnectionRefusedError):
                await Connection.open(address)

    asyncio.run(main())


def test_c106_streams_get_an_error_at_the_limit() -> None:
    async def main() -> None:
        async with running(saying("abc"), shutdown_timeout_s=0.05) as (api, address, task):
            api.core.hold()
            async with await Connection.open(address) as client:
                await client.send("POST", CHAT, {**BODY, "stream": True})
                await api.core.has_running(1)
                api.core.step()
                await client.head()
                os.kill(os.getpid(), signal.SIGINT)
                body = b"".join([chunk async for chunk in client.chunks()])
                assert b"shutting down" in body
                assert body.endswith(b"data: [DONE]\n\n")
                async with asyncio.timeout(5):
                    await task

    asyncio.run(main())


def test_c106_a_second_signal_ends_at_once() -> None:
    async def main() -> None:
        async with running(saying("abc"), shutdown_timeout_s=60) as (api, address, task):
            api.core.hold()
            async with await Connection.open(address) as client:
                await client.send("POST", CHAT, {**BODY, "stream": True})
                await api.core.has_running(1)
                api.core.step()
                await client.head()
                os.kill(os.getpid(), signal.SIGTERM)
                async with asyncio.timeout(5):
                    while not api.llm.is_draining:
                        await asyncio.sleep(0)
                start = time.perf_counter()
                os.kill(os.getpid(), signal.SIGTERM)
                async with asyncio.timeout(5):
                    await task
                assert time.perf_counter() - start < 1

    asyncio.run(main())


def test_a_dead_engine_ends_the_server_with_its_last_words() -> None:
    async def main() -> None:
        async with running(saying("abc")) as (api, address, task):
            api.core.hold()
            async with await Connection.open(address) as client:
                await client.send("POST", CHAT, BODY)
                await api.core.has_running(1)
                api.core.die("The core was killed.")
                answer = await client.response()
                assert answer.status == 500
                assert answer.json["error"]["message"] == "The core was killed."
                with pytest.raises(EngineDead, match="The core was killed"):
                    async with asyncio.timeout(5):
                        await task

    asyncio.run(main())


def test_signal_handlers_are_gone_after_serving() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def main() -> None:
        async with running():
            pass

    asyncio.run(main())
    assert signal.getsignal(signal.SIGTERM) is before


def test_c107_a_port_in_use_is_one_sentence() -> None:
    first = bind(ServerConfig(host="127.0.0.1", port=0))
    try:
        port = first.getsockname()[1]
        with pytest.raises(StartupError, match=f"Port {port} is in use") as caught:
            bind(ServerConfig(host="127.0.0.1", port=port))
        assert "\n" not in caught.value.message
    finally:
        first.close()


async def polls_until_served(address: Any, is_over: asyncio.Event) -> list[int]:
    """Statuses of `/health`, one connection each; a lost connection raises."""
    statuses = []
    while not is_over.is_set():
        statuses.append(await get(address, "/health"))
    return statuses


def test_no_connection_is_lost_at_the_take_over() -> None:
    async def main() -> None:
        server = ServerConfig(host="127.0.0.1", port=0)
        listener = bind(server)
        address = listener.getsockname()
        responder = StartingResponder(listener, phase="loading weights")
        responder.start()
        is_over, is_ready = asyncio.Event(), asyncio.Event()
        async with serving(server) as api:
            clients = [asyncio.create_task(polls_until_served(address, is_over)) for _ in range(8)]
            async with await Connection.open(address) as slow:
                assert await get(address, "/health") == 503
                slow.writer.write(b"GET /health HT")
                await slow.writer.drain()
                task = asyncio.create_task(
                    serve(
                        api.app,
                        listener,
                        api.llm,
                        server,
                        responder=responder,
                        on_ready=is_ready.set,
                    )
                )
                await is_ready.wait()
                assert await get(address, "/health") == 200
                slow.writer.write(b"TP/1.1\r\n\r\n")
                status, _ = await slow.head()  # accepted before, answered after
                assert status in (503, 200)
            is_over.set()
            seen = [status for client in clients for status in await client]
            assert set(seen) == {503, 200}
            os.kill(os.getpid(), signal.SIGTERM)
            await task

    asyncio.run(main())


#: made for these tests, for localhost, trusted by nobody
CERT = str(Path(__file__).with_name("localhost.crt"))
KEY = str(Path(__file__).with_name("localhost.key"))


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=CERT)
    context.check_hostname = False
    return context


def test_tls_before_and_after_the_take_over() -> None:
    config = ServerConfig(host="127.0.0.1", port=0, ssl_certfile=CERT, ssl_keyfile=KEY)

    async def main() -> None:
        listener = bind(config)
        address = listener.getsockname()
        responder = StartingResponder(listener, tls=tls_context(config))
        responder.start()
        async with await Connection.open(address, trusting()) as client:
            assert (await client.request("GET", "/health")).status == 503
        responder.stop()
        listener.close()
        async with (
            running(ssl_certfile=CERT, ssl_keyfile=KEY) as (_, served, _),
            await Connection.open(served, trusting()) as client,
        ):
            assert (await client.request("GET", "/health")).status == 200

    asyncio.run(main())


def test_a_unix_socket_instead_of_a_port(tmp_path: Path) -> None:
    async def main() -> None:
        path = str(tmp_path / "server.sock")
        for _ in range(2):  # the second start finds the first one's stale file
            async with running(uds=path) as (_, address, _):
                assert address == path
                assert await get(path, "/health") == 200

    asyncio.run(main())


def test_server_header_is_not_sent_and_access_log_is_quiet_for_probes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        caplog.set_level("INFO", "uvicorn.access")
        async with running() as (_, address, _), await Connection.open(address) as client:
            answer = await client.request("GET", "/health")
            assert "server" not in answer.headers
            await client.request("GET", "/v1/models")
        lines = [r.getMessage() for r in caplog.records if r.name == "uvicorn.access"]
        assert len(lines) == 1
        assert '"GET /v1/models HTTP/1.1" 200 OK' in lines[0]

    asyncio.run(main())


def test_nobody_listens_after_bind_is_closed() -> None:
    listener = bind(ServerConfig(host="127.0.0.1", port=0))
    address = listener.getsockname()
    with socket.create_connection(address):  # queued, not refused
        pass
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
