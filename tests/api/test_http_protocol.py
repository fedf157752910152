"""Connections that break the rules of HTTP, on real sockets."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from octavo.api.http_protocol import MAX_HEAD_BYTES, HttpProtocol
from tests.api.test_server import BODY, CHAT, running
from tests.fakes.fake_async_llm import saying
from tests.fakes.http_socket import Connection

HEAD = b"Host: x\r\nContent-Type: application/json\r\n"
DATA = json.dumps(BODY).encode()
POST = b"POST " + CHAT.encode() + b" HTTP/1.1\r\n" + HEAD
GOOD = POST + b"Content-Length: %d\r\n\r\n" % len(DATA) + DATA
LIVE = b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n"


async def all_of(client: Connection) -> bytes:
    """Everything the server sends until it closes the connection."""
    async with asyncio.timeout(10):
        return await client.reader.read()


def error_of(answer: bytes, status: int) -> str:
    """Message of an error that is the whole answer, in the API's shape."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer
    assert b"connection: close" in head.lower()
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == status
    message: str = error["message"]
    return message


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0" * 100,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /live HTTP/3.7\r\n\r\n",
        b"BREW /live HTTP/1.1\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET /live HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /live HTTP/1.1\r\nx: a\0b\r\n\r\n",
        b"CONNECT other:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        POST + b"Content-Length: -5\r\n\r\n{}",
        POST + b"Content-Length: five\r\n\r\n{}",
        POST + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
        POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}{}{}",
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 5\r\n\r\n" + DATA,
        POST + b"\r\n" + DATA,
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n" + DATA,
        POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffffffff\r\n",
        GOOD + b"JUNK\r\n\r\n",
    ],
)
def test_what_is_not_http_is_a_400_in_the_apis_shape(sent: bytes) -> None:
    async def main() -> None:
        async with running() as (api, address, _):
            async with await Connection.open(address) as client:
                client.writer.write(sent)
                error_of(await all_of(client), 400)
            await api.is_alive()
            assert api.llm.num_unfinished_requests == 0

    asyncio.run(main())


@pytest.mark.parametrize("line", [b"x: " + b"a" * 1000 + b"\r\n", b"a" * 1000])
def test_a_head_without_end_is_cut_off(line: bytes) -> None:
    async def main() -> None:
        async with running() as (_, address, _), await Connection.open(address) as client:
            client.writer.write(b"GET /live HTTP/1.1\r\n")
            for _ in range(MAX_HEAD_BYTES // len(line) + 1):
                client.writer.write(line)
            message = error_of(await all_of(client), 431)
            assert str(MAX_HEAD_BYTES) in message

    asyncio.run(main())


CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(DATA), DATA)


@pytest.mark.parametrize("line", [b"x: " + b"a" * 1000 + b"\r\n", b"a" * 1000])
@pytest.mark.parametrize("last_chunk", [b"0\r\n", b"5;"], ids=["trailers", "extension"])
def test_what_follows_a_body_without_end_is_cut_off(line: bytes, last_chunk: bytes) -> None:
    async def main() -> None:
        async with running() as (_, address, _), await Connection.open(address) as client:
            client.writer.write(CHUNKED + last_chunk)
            answer = asyncio.create_task(client.reader.readexactly(12))
            for _ in range(2 * MAX_HEAD_BYTES // len(line)):
                client.writer.write(line)
                await asyncio.wait([answer], timeout=0.001)
                if answer.done():
                    break
            assert answer.done(), "it may go on for ever"
            assert await answer in (b"HTTP/1.1 431", b"HTTP/1.1 400")

    asyncio.run(main())


def test_trailers_are_no_headers() -> None:
    async def main() -> None:
        async with (
            running(saying("abc")) as (_, address, _),
            await Connection.open(address) as client,
        ):
            client.writer.write(CHUNKED + b"0\r\nContent-Type: text/plain\r\n\r\n")
            answer = await client.response()
            assert answer.json["choices"][0]["message"]["content"] == "abc"

    asyncio.run(main())


def test_requests_in_one_piece_do_not_add_up_to_a_large_head() -> None:
    num = 2 * MAX_HEAD_BYTES // len(LIVE)

    async def main() -> None:
        async with running() as (_, address, _), await Connection.open(address) as client:
            for _ in range(3):
                client.writer.write(LIVE * num + LIVE[:20])  # cut within a head
                await client.writer.drain()
                client.writer.write(LIVE[20:])
                for _ in range(num + 1):
                    assert (await client.response()).status == 200

    asyncio.run(main())


@pytest.mark.parametrize(
    "sent", [b"", b"\r\n", LIVE[:20], LIVE + LIVE[:20], POST + b"Content-Length: 100\r\n\r\n{"]
)
def test_a_request_that_does_not_arrive_is_given_up(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpProtocol, "limit_s", 0.1)

    async def main() -> None:
        async with running() as (api, address, _), await Connection.open(address) as client:
            client.writer.write(sent)
            answer = await all_of(client)
            if sent.startswith(LIVE):
                answer = answer[answer.index(b"HTTP/1.1 408") :]
            assert "0.1 seconds" in error_of(answer, 408)
            assert api.llm.num_unfinished_requests == 0

    asyncio.run(main())


def test_a_request_in_pieces_and_a_slow_answer_are_not_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HttpProtocol, "limit_s", 0.1)

    async def main() -> None:
        async with running(saying("abc")) as (api, address, _):
            api.core.hold()
            async with await Connection.open(address) as client:
                for start in range(0, len(GOOD), 25):
                    client.writer.write(GOOD[start : start + 25])
                    await asyncio.sleep(0.001)
                await api.core.has_running(1)
                await asyncio.sleep(0.2)  # longer than the limit: it is not the client's turn
                api.core.release()
                answer = await client.response()
                assert answer.json["choices"][0]["message"]["content"] == "abc"

    asyncio.run(main())


@pytest.mark.parametrize(
    "extra", [b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n", b"Upgrade: websocket\r\n"]
)
@pytest.mark.parametrize("cut", [None, 40, -5])
def test_a_request_to_upgrade_keeps_its_body(extra: bytes, cut: int | None) -> None:
    async def main() -> None:
        async with (
            running(saying("abc")) as (_, address, _),
            await Connection.open(address) as client,
        ):
            sent = GOOD.replace(HEAD, HEAD + extra)
            for _ in range(2):  # the connection goes on, too
                client.writer.write(sent[:cut])
                if cut is not None:
                    await asyncio.sleep(0.01)
                    client.writer.write(sent[cut:])
                answer = await client.response()
                assert answer.status == 200, answer.body
                assert answer.json["choices"][0]["message"]["content"] == "abc"

    asyncio.run(main())


def test_pipelined_requests_are_answered_in_order() -> None:
    async def main() -> None:
        async with (
            running(saying("abc")) as (_, address, _),
            await Connection.open(address) as client,
        ):
            client.writer.write((GOOD + LIVE) * 20)
            for _ in range(20):
                assert (await client.response()).json["object"] == "chat.completion"
                assert (await client.response()).json == {"status": "ok"}

    asyncio.run(main())


def test_a_client_that_leaves_with_requests_in_its_pipeline_aborts_the_running_one() -> None:
    async def main() -> None:
        async with running(saying("abc" * 100)) as (api, address, _):
            api.core.hold()
            client = await Connection.open(address)
            streamed: dict[str, Any] = {**BODY, "stream": True}
            await client.send("POST", CHAT, streamed)
            await api.core.has_running(1)
            await client.send("POST", CHAT, streamed)
            api.core.step()
            await client.head()
            client.writer.transport.abort()
            async with asyncio.timeout(5):
                while api.core.num_running:
                    api.core.step()  # the closed connection shows when something is written
                    await asyncio.sleep(0.001)
            assert len(api.core.added) == 1
            assert api.core.aborted == [api.core.added[0].request_id]

    asyncio.run(main())


def test_a_client_that_does_not_read_holds_up_nobody_and_nothing_stays_of_it() -> None:
    async def main() -> None:
        async with running(lambda request: [97] * 500) as (api, address, _):
            num_tasks = len(asyncio.all_tasks())
            client = await Connection.open(address)
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            # 20 MB of events: far more than the buffers between server and client hold
            asked = {**BODY, "stream": True, "n": 16, "max_tokens": 500}
            await client.send("POST", CHAT, {**asked, "logprobs": True, "top_logprobs": 20})
            await api.core.has_running(16)
            async with asyncio.timeout(30):
                while api.core.num_running:  # the engine does not wait for the client
                    await asyncio.sleep(0.001)
            await api.is_alive()
            client.writer.transport.abort()
            async with asyncio.timeout(5):
                while len(asyncio.all_tasks()) > num_tasks:
                    await asyncio.sleep(0.001)
            assert api.llm.num_unfinished_requests == 0

    asyncio.run(main())


def test_http_1_0_gets_an_answer_and_the_end_of_the_connection() -> None:
    async def main() -> None:
        async with running(saying("abc")) as (_, address, _):
            for extra in ({}, {"stream": True}):
                data = json.dumps({**BODY, **extra}).encode()
                async with await Connection.open(address) as client:
                    head = GOOD.split(b"\r\n\r\n")[0].replace(b"HTTP/1.1", b"HTTP/1.0")
                    head = head.replace(b"%d" % len(DATA), b"%d" % len(data))
                    client.writer.write(head + b"\r\n\r\n" + data)
                    answer = await all_of(client)
                    assert answer.startswith(b"HTTP/1.1 200 OK")
                    assert b"abc" in answer or b'"content":"c"' in answer

    asyncio.run(main())
