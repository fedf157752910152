"""Clients that leave: what they asked for ends in the core within a second (case C100)."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.replies import CHAT, COMPLETIONS, load, send, user, wait_idle
from tests.integration.server import Server, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that runs two requests at a time; others wait."""
    with serving(tmp_path_factory.mktemp("server") / "log", "--max-num-seqs", "2") as running:
        yield running


def story(request_id: str, stream: bool) -> dict[str, Any]:
    """A chat that would go on for minutes."""
    return {
        "messages": user("Tell me a story."),
        "max_tokens": 8000,
        "ignore_eos": True,
        "stream": stream,
        "request_id": request_id,
    }


def wait_load(server: Server, running: int, waiting: int) -> None:
    deadline = time.monotonic() + 10
    while load(server)[:2] != (running, waiting):
        assert time.monotonic() < deadline, load(server)


def num_aborts(server: Server, request_id: str) -> int:
    """Lines of the log that say that this request was aborted."""
    return server.log.count(f"Aborted request chatcmpl-{request_id}-")


@pytest.mark.parametrize("stream", [True, False])
def test_c100_a_client_that_leaves_while_its_request_runs(server: Server, stream: bool) -> None:
    request_id = f"runs-{stream}"
    for times in (1, 2):  # the same id again: nothing of the first may be left
        connection = send(server, CHAT, story(request_id, stream))
        wait_load(server, 1, 0)
        if stream:
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        connection.close()
        wait_idle(server)
        assert num_aborts(server, request_id) == times
    server.is_alive()


@pytest.mark.parametrize("stream", [True, False])
def test_c100_a_client_that_leaves_the_queue(server: Server, stream: bool) -> None:
    running = [send(server, CHAT, story(f"front-{stream}-{i}", True)) for i in range(2)]
    wait_load(server, 2, 0)
    queued = send(server, CHAT, story(f"queued-{stream}", stream))
    wait_load(server, 2, 1)
    queued.close()
    deadline = time.monotonic() + 1
    while load(server)[:2] != (2, 0):
        assert time.monotonic() < deadline
    assert num_aborts(server, f"queued-{stream}") == 1
    for connection in running:
        connection.close()
    wait_idle(server)


@pytest.mark.parametrize("stream", [True, False])
def test_c100_a_client_that_leaves_during_prefill(server: Server, stream: bool) -> None:
    tokens = [random.Random(stream).randrange(1000, 40000) for _ in range(7000)]
    before = server.metric("vllm:generation_tokens_total")
    connection = send(server, COMPLETIONS, {"prompt": tokens, "stream": stream})
    wait_load(server, 1, 0)
    connection.close()
    wait_idle(server)
    assert server.metric("vllm:generation_tokens_total") == before
    server.is_alive()


def test_c100_a_storm_of_a_thousand(server: Server) -> None:
    rng = random.Random(100)
    connections: list[socket.socket] = []
    for number in range(1000):
        connections.append(send(server, CHAT, story(f"storm-{number}", rng.random() < 0.5)))
        while len(connections) > rng.randrange(40):
            connections.pop(rng.randrange(len(connections))).close()
    for connection in connections:
        connection.close()
    wait_idle(server, limit_s=10)  # a thousand prompts are tokenised on the way
    assert server.metric("vllm:num_requests_running") == 0
    server.is_alive()
    assert "Traceback" not in server.log
