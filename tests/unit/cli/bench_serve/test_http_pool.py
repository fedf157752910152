"""Exchanges over kept connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from octavo.cli.bench_serve.http_pool import Answered, HttpPool
from octavo.errors import ConfigError
from tests.fakes.stub_server import Reply, StubServer, answering


async def get(pool: HttpPool, path: str = "/x") -> tuple[Answered, bytes]:
    pieces: list[bytes] = []
    answered = await pool.exchange("GET", path, {}, b"", lambda piece, now: pieces.append(piece))
    return answered, b"".join(pieces)


CHUNKED = b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"


class RawServer:
    """Answers every connection with bytes of the test's choice."""

    def __init__(self, *answers: bytes, closes: bool) -> None:
        self._answers = list(answers)
        self._closes = closes
        self.num_connections = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, use: Callable[[HttpPool], Awaitable[None]]) -> None:
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, HttpPool(f"http://127.0.0.1:{port}") as pool:
            await use(pool)
        for writer in self._writers:
            writer.close()
            await writer.wait_closed()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        self._writers.append(writer)
        while await reader.readline():
            while (await reader.readline()).strip():
                pass
            answer = self._answers.pop(0)
            writer.write(answer)
            if self._closes:
                break
        writer.close()


def raw(answer: bytes, *more: bytes, closes: bool = True) -> RawServer:
    return RawServer(answer, *more, closes=closes)


def test_a_connection_is_used_again() -> None:
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    server = raw(ok, ok, closes=False)

    async def use(pool: HttpPool) -> None:
        assert await get(pool) == (Answered(200, "OK"), b"hi")
        assert await get(pool) == (Answered(200, "OK"), b"hi")

    asyncio.run(server.serve(use))
    assert server.num_connections == 1


def test_exchanges_at_the_same_time_have_connections_of_their_own() -> None:
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    server = raw(*[ok] * 3, closes=False)

    async def use(pool: HttpPool) -> None:
        await asyncio.gather(*(get(pool) for _ in range(3)))

    asyncio.run(server.serve(use))
    assert server.num_connections == 3


def test_a_kept_connection_that_was_closed_is_replaced() -> None:
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"  # and then closed, unannounced
    server = raw(ok, ok)

    async def use(pool: HttpPool) -> None:
        await get(pool)
        assert (await get(pool))[1] == b"hi"

    asyncio.run(server.serve(use))
    assert server.num_connections == 2


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nto the end", b"to the end"),
        (
            CHUNKED + b"3\r\nabc\r\n0\r\n\r\n",
            b"abc",
        ),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
    ],
)
def test_every_way_a_body_can_end(answer: bytes, body: bytes) -> None:
    async def use(pool: HttpPool) -> None:
        assert (await get(pool))[1] == body

    asyncio.run(raw(answer).serve(use))


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nabc",
        CHUNKED + b"3\r\nabc\r\n",
        b"220 smtp ready\r\n",
    ],
)
def test_an_answer_that_is_not_whole_is_an_error(answer: bytes) -> None:
    async def use(pool: HttpPool) -> None:
        with pytest.raises(OSError, match=r"closed the connection|not HTTP"):
            await get(pool)

    asyncio.run(raw(answer).serve(use))


def test_the_path_of_the_base_url_stands_before_every_path() -> None:
    async def run(server: StubServer) -> None:
        async with HttpPool(f"{server.url}/behind/a/proxy/") as pool:
            await get(pool, "/v1/models")

    with answering(Reply(), models=Reply()) as server:
        asyncio.run(run(server))
    assert server.asked[0].path == "/behind/a/proxy/v1/models"
    assert server.asked[0].headers["host"] == f"127.0.0.1:{server.port}"


def test_a_cancelled_exchange_leaves_no_connection_behind() -> None:
    async def use(pool: HttpPool) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(get(pool), 0.05)
        assert not pool._idle

    # half an answer, and the connection stays open
    asyncio.run(raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", closes=False).serve(use))


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "http://x:y"])
def test_a_wrong_url_is_a_mistake_of_usage(url: str) -> None:
    with pytest.raises(ConfigError, match="must look like"):
        HttpPool(url)
