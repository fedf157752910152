"""The load generator of the benchmarks: what it notes of replies that come in any pieces."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest

from benchmarks.peers.load import Load, Sample, read_reply, run

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
USAGE = {"prompt_tokens": 7, "completion_tokens": 3}


def event(piece: object) -> bytes:
    return b"data: " + json.dumps(piece).encode() + b"\n\n"


REPLY = b"".join(
    [
        HEAD,
        *(event({"choices": [{"text": text}]}) for text in ("a", "b", "c")),
        event({"choices": [], "usage": USAGE}),
        b"data: [DONE]\n\n",
    ]
)


@pytest.mark.parametrize("size", [1, 2, 7, 50, len(REPLY)])
def test_a_reply_counts_the_same_in_pieces_of_any_size(size: int) -> None:
    pieces = [REPLY[at : at + size] for at in range(0, len(REPLY), size)]
    sample = Sample(pieces=[(float(number), piece) for number, piece in enumerate(pieces)])
    read_reply(sample)
    assert (sample.status, sample.prompt_tokens, sample.output_tokens) == ("200", 7, 3)
    ends = [REPLY.index(text) + len(text) for text in (b'"a"}]}\n', b'"b"}]}\n', b'"c"}]}\n')]
    assert sample.arrivals_s == [float((end - 1) // size) for end in ends]
    assert sample.ttft_s == sample.arrivals_s[0]


@pytest.fixture
def server() -> Iterator[tuple[int, list[int]]]:
    """Answers connections one after another, each third with 503; its port, requests at a time."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    open_now, most, lock = [0], [0], threading.Lock()

    def answer(connection: socket.socket, number: int) -> None:
        with connection:
            connection.recv(1 << 16)
            with lock:
                open_now[0] += 1
                most[0] = max(most[0], open_now[0])
            threading.Event().wait(0.05)
            with lock:
                open_now[0] -= 1
            connection.sendall(b"HTTP/1.1 503 no\r\n\r\n" if number % 3 == 2 else REPLY)

    def accept() -> None:
        for number in range(9):
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection, number), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    with listener:
        yield listener.getsockname()[1], most


def test_a_load_is_bounded_and_counts_what_fails(server: tuple[int, list[int]]) -> None:
    port, most = server
    figures = run(Load(n=9, concurrency=4, prompt_chars=10), port)
    assert most[0] <= 4
    assert figures["ok"] == 6
    assert figures["bad"] == ["503"]
    assert figures["output_tokens"] == 18
    assert figures["prompt_tokens"] == 7
    assert figures["ttft_p50_ms"] > 0


def test_a_server_that_is_not_there_is_a_failure_of_each_request() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    figures = run(Load(n=3, concurrency=2, prompt_chars=10), port)
    assert figures["ok"] == 0
    assert "ConnectionRefusedError" in figures["bad"][0]
