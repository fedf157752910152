"""The metrics page alone."""

from __future__ import annotations

import asyncio
import socket

import pytest

from octavo.api.metrics_page import serve_metrics


def page(accept: str) -> tuple[bytes, str]:
    return f"page for {accept!r}\n".encode(), "text/x-test"


def ask(request: bytes) -> bytes:
    async def run() -> bytes:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        server = await serve_metrics(page, listener)
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(request)
        if not request.endswith(b"\r\n\r\n"):
            writer.write_eof()
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
        return answer

    return asyncio.run(run())


def test_the_page_is_in_the_format_asked_for() -> None:
    answer = ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\naccept: text/plain;version=1\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Type: text/x-test" in head
    assert body == b"page for 'text/plain;version=1'\n"
    assert b"Content-Length: %d\r\n" % len(body) in head + b"\r\n"


def test_a_head_request_has_no_body() -> None:
    assert ask(b"HEAD / HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")


@pytest.mark.parametrize("request_bytes", [b"", b"GET /", b"x" * 20_000])
def test_what_is_no_request_is_hung_up_on(request_bytes: bytes) -> None:
    assert ask(request_bytes) == b""
