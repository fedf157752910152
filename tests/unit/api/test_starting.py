from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from octavo.api.listener import bind
from octavo.api.starting import StartingResponder
from octavo.config.server import ServerConfig


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with bind(ServerConfig(host="127.0.0.1", port=0)) as bound:
        yield bound


@pytest.fixture
def responder(listener: socket.socket) -> Iterator[StartingResponder]:
    started = StartingResponder(listener, phase="loading weights")
    started.start()
    yield started
    started.stop()


def ask(
    listener: socket.socket, method: str, path: str, body: bytes | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", listener.getsockname()[1], timeout=5)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def test_everything_is_503_with_phase_and_retry_after(
    listener: socket.socket, responder: StartingResponder
) -> None:
    for method, path in (("GET", "/health"), ("GET", "/ready"), ("POST", "/v1/chat/completions")):
        status, headers, body = ask(listener, method, path, b"{}" if method == "POST" else None)
        assert status == 503
        assert headers["retry-after"] == "1"
        content = json.loads(body)
        assert content["status"] == "starting"
        assert content["phase"] == "loading weights"
        assert set(content["error"]) == {"message", "type", "param", "code"}
    responder.phase = "warming up"
    assert json.loads(ask(listener, "GET", "/health")[2])["phase"] == "warming up"


def test_live_is_200_and_head_has_no_body(
    listener: socket.socket, responder: StartingResponder
) -> None:
    assert ask(listener, "GET", "/live?x=1")[0] == 200
    status, headers, body = ask(listener, "HEAD", "/health")
    assert (status, body) == (503, b"")
    assert int(headers["content-length"]) > 0


def test_large_bodies_do_not_cut_the_answer(
    listener: socket.socket, responder: StartingResponder
) -> None:
    status, _, body = ask(listener, "POST", "/v1/completions", b"x" * 300_000)
    assert status == 503
    assert json.loads(body)["status"] == "starting"


def test_a_slow_client_does_not_keep_others_waiting(
    listener: socket.socket, responder: StartingResponder
) -> None:
    with socket.create_connection(listener.getsockname()) as slow:
        slow.sendall(b"GET /hea")
        assert ask(listener, "GET", "/health")[0] == 503
        responder.stop()  # does not wait for it either
        slow.sendall(b"lth HTTP/1.1\r\n\r\n")
        assert slow.recv(100).startswith(b"HTTP/1.1 503")


def test_connections_after_the_stop_wait_for_the_server(
    listener: socket.socket, responder: StartingResponder
) -> None:
    responder.stop()
    responder.stop()
    with socket.create_connection(listener.getsockname()) as waiting:
        waiting.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.recv(100).startswith(b"GET /health")


def test_a_client_that_leaves_or_sends_nothing_does_no_harm(
    listener: socket.socket, responder: StartingResponder
) -> None:
    for data in (b"", b"\x00\xff", b"GET /health"):
        with socket.create_connection(listener.getsockname()) as client:
            client.sendall(data)
    assert ask(listener, "GET", "/health")[0] == 503


def test_the_thread_ends_with_stop(listener: socket.socket) -> None:
    started = StartingResponder(listener)
    started.start()
    started.stop()
    assert "octavo-starting" not in [t.name for t in threading.enumerate()]
