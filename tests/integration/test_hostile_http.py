"""Hostile and broken requests against a real server, while another client's stream runs.

Each is answered with what it deserves, in the API's error shape; after each the server is alive,
and the other stream has said what it says alone.
"""

from __future__ import annotations

import itertools
import json
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.server import Server, Stream, serving
from tests.integration.soak import wait_idle

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "hi"}]
VOCAB_SIZE = 49152
GREEDY = {"prompt": "The sea", "max_tokens": 60, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("hostile") / "log") as running:
        yield running
        wait_idle(running)
        assert "Traceback" not in running.log


@pytest.fixture(autouse=True, scope="module")
def neighbour(server: Server) -> Iterator[None]:
    """A client that streams the same greedy text all the time, and must get it each time."""
    alone = server.complete(**GREEDY)["choices"][0]["text"]
    is_over = threading.Event()
    texts: list[str] = []

    def run() -> None:
        while not is_over.is_set():
            stream = Stream(server, COMPLETIONS, GREEDY)
            events = list(stream.events())
            stream.close()
            assert events[-1] == "[DONE]"
            texts.append("".join(json.loads(e)["choices"][0]["text"] for e in events[:-1]))

    thread = threading.Thread(target=run)
    thread.start()
    yield
    is_over.set()
    thread.join()
    assert texts
    assert set(texts) == {alone}


@pytest.fixture(autouse=True)
def alive(server: Server) -> Iterator[None]:
    yield
    server.is_alive()


def refused(server: Server, path: str, body: Any, status: int = 400) -> dict[str, Any]:
    """The error of a request that is refused with `status`."""
    found, _, data = server.request("POST", path, body)
    assert found == status, data[:300]
    error: dict[str, Any] = json.loads(data)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert 0 < len(error["message"]) < 1000
    assert error["message"].isprintable()
    return error


def chat(**fields: Any) -> dict[str, Any]:
    return {"messages": MESSAGES, "max_tokens": 3, **fields}


def completion(**fields: Any) -> dict[str, Any]:
    return {"prompt": "hi", "max_tokens": 3, **fields}


# ---- bodies ------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[str, Any, int, str | None]] = {
    "10 MB prompt": (COMPLETIONS, {"prompt": "word " * 2_000_000}, 400, "input_text"),
    "10 MB message": (
        CHAT,
        {"messages": [{"role": "user", "content": "word " * 2_000_000}]},
        400,
        "input_text",
    ),
    "10 MB to truncate": (
        COMPLETIONS,
        {"prompt": "word " * 2_000_000, "truncate_prompt_tokens": 5},
        400,
        "prompt",
    ),
    "100k ids": (COMPLETIONS, {"prompt": [5] * 100_000}, 400, "input_tokens"),
    "100k prompts": (COMPLETIONS, {"prompt": ["a"] * 100_000}, 400, "prompt"),
    "100k messages": (CHAT, {"messages": MESSAGES * 100_000}, 400, "messages"),
    "100k stop strings": (CHAT, chat(stop=["a"] * 100_000), 400, "stop"),
    "100k bad words": (CHAT, chat(bad_words=["a"] * 100_000), 400, "bad_words"),
    "stop of a megabyte": (CHAT, chat(stop="x" * 1_000_000), 400, "stop"),
    "bad word of a megabyte": (CHAT, chat(bad_words=["x" * 1_000_000]), 400, "bad_words"),
    "outputs without end": (COMPLETIONS, completion(prompt=["a"] * 1024, n=100), 400, "n"),
    "copies of a long prompt": (COMPLETIONS, completion(prompt=[5] * 8000, n=16384), 400, "n"),
    "ids to text": ("/detokenize", {"tokens": [5] * 900_000}, 400, "tokens"),
    "text to ids": ("/tokenize", {"prompt": "word " * 2_000_000}, 400, "prompt"),
    "60 MB of lists": (COMPLETIONS, b'{"prompt":[' + b"[]," * 20_000_000 + b"1]}", 413, None),
    "70 MB": (COMPLETIONS, b'{"prompt":"' + b"a" * 70_000_000 + b'"}', 413, None),
    "huge numbers": (COMPLETIONS, completion(x=[1e308] * 900_000), 413, None),
    "zeros": (COMPLETIONS, b"\0" * 1_000_000, 400, "body"),
    "deep": (COMPLETIONS, b"[" * 1_000_000, 400, "body"),
    "not UTF-8": (CHAT, b'{"messages":[{"role":"user","content":"\xff"}]}', 400, "body"),
    "lone surrogate": (CHAT, b'{"messages":[{"role":"user","content":"\\ud800"}]}', 400, "body"),
    "NaN": (COMPLETIONS, b'{"prompt":"hi","temperature":NaN}', 400, "body"),
    "Infinity": (COMPLETIONS, b'{"prompt":"hi","temperature":-Infinity}', 400, "body"),
    "beyond double": (COMPLETIONS, b'{"prompt":"hi","temperature":1e999}', 400, "body"),
    "5000 digits": (COMPLETIONS, b'{"prompt":"hi","seed":' + b"9" * 5000 + b"}", 400, "body"),
    "last of twins": (COMPLETIONS, b'{"prompt":"hi","prompt":""}', 400, "prompt"),
    "nothing allowed": (
        COMPLETIONS,
        completion(allowed_token_ids=[2], min_tokens=2),
        400,
        "allowed_token_ids",
    ),
    "all stop, none may": (
        COMPLETIONS,
        completion(stop_token_ids=list(range(VOCAB_SIZE)), min_tokens=2),
        400,
        "stop_token_ids",
    ),
    "minimum beyond the window": (
        CHAT,
        {"messages": MESSAGES, "min_tokens": 8190},
        400,
        "min_tokens",
    ),
    "window without room": (COMPLETIONS, {"prompt": [5] * 8192}, 400, "input_tokens"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_body_that_cannot_be_served_is_refused_with_its_field(server: Server, name: str) -> None:
    path, body, status, param = REFUSED[name]
    assert refused(server, path, body, status)["param"] == param


def test_a_request_that_becomes_impossible_is_told_so(server: Server) -> None:
    seven, again = server.post("/tokenize", {"prompt": "77"})[1]["tokens"]
    assert seven == again  # so that after one 7 there is no token left
    asked = completion(allowed_token_ids=[seven], bad_words=["77"])
    assert "every token was excluded" in refused(server, COMPLETIONS, asked)["message"]
    stream = Stream(server, COMPLETIONS, asked)
    *_, error, end = stream.events()
    stream.close()
    assert json.loads(error)["error"]["code"] == 400
    assert end == "[DONE]"


EXTREME: list[dict[str, Any]] = [
    {"temperature": 2, "repetition_penalty": 1e300},
    {"temperature": 5e-324, "repetition_penalty": 5e-324},
    {"temperature": 0.001, "presence_penalty": 2, "frequency_penalty": -2},
    {"temperature": 2, "top_p": 5e-324},
    {"temperature": 2, "top_p": 1e-300, "min_p": 1, "top_k": 2**63},
    {"temperature": 1, "min_p": 5e-324},
    {"temperature": 1, "top_k": 1e18},
    {"seed": 2**64 - 1, "temperature": 1, "n": 3},
    {"seed": -(2**63), "temperature": 1, "n": 3},
    {"priority": 2**63 - 1},
    {"priority": -(2**63)},
    {"logit_bias": {str(i): -1e279 for i in range(VOCAB_SIZE)}},
    {"logit_bias": {"5": 1e308, "6": -1e308}},
    {"allowed_token_ids": list(range(VOCAB_SIZE))},
    {"stop_token_ids": [5] * 100_000},
    {"stop": ["x" * 60_000, "\0", "\uffff"]},
    {"prompt": "\0" * 50},
    {"prompt": "<|im_end|>" * 50},
    {"prompt": "\U0010ffff\u202e\ufeff"},
    {"prompt": ["a"] * 100, "max_tokens": 1},
    {"n": 40, "temperature": 1},
    {"echo": True, "logprobs": 20, "max_tokens": 0},
    {"vllm_xargs": {"a": [1, 2.5, "x", True, 2**63 - 1]}},
]


@pytest.mark.parametrize("fields", EXTREME, ids=lambda fields: ",".join(fields))
def test_extreme_values_that_are_allowed_are_served(server: Server, fields: dict[str, Any]) -> None:
    status, answer = server.post(COMPLETIONS, completion(**fields))
    assert status == 200, answer
    assert all(c["finish_reason"] in {"stop", "length"} for c in answer["choices"])


# ---- connections ---------------------------------------------------------------------------------

BODY = json.dumps(chat(max_tokens=400, ignore_eos=True)).encode()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


@pytest.mark.parametrize(
    "sent",
    [
        HEAD,
        HEAD + b"Content-Length: 5000\r\n\r\n" + BODY,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n" + BODY,
        HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY,
        (HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY) * 5,
    ],
    ids=["head", "body", "chunk", "request", "pipeline"],
)
@pytest.mark.parametrize("way", ["close", "reset", "half-close"])
def test_connections_that_break_anywhere_leave_no_request(
    server: Server, sent: bytes, way: str
) -> None:
    for _ in range(5):
        with connect(server) as client:
            client.sendall(sent)
            if way == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif way == "half-close":
                client.shutdown(socket.SHUT_WR)
                while client.recv(65536):
                    pass


def test_bodies_that_trickle_in_are_served_and_delay_nobody(server: Server) -> None:
    body = json.dumps(chat()).encode()
    clients = [connect(server) for _ in range(100)]
    for client in clients:
        client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body))
    for index in range(0, len(body), 10):
        for client in clients:
            client.sendall(body[index : index + 10])
        assert server.request("GET", "/health", timeout_s=5)[0] == 200
    for client in clients:
        assert client.recv(12) == b"HTTP/1.1 200"
        client.close()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", CHAT, 405),
        ("PUT", COMPLETIONS, 405),
        ("DELETE", "/v1/models", 405),
        ("TRACE", "/health", 405),
        ("POST", "/v1/completions/", 404),
        ("GET", "//health", 404),
        ("GET", "/health;x", 404),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404),
        ("GET", "/v1/models/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/%ff%00%0d%0aX-Evil:%201", 404),
        ("OPTIONS", "*", 404),
    ],
)
def test_wrong_methods_and_tricks_with_paths(
    server: Server, method: str, path: str, status: int
) -> None:
    found, headers, data = server.request(method, path)
    assert found == status
    assert "x-evil" not in headers
    message = json.loads(data)["error"]["message"]
    assert message.isprintable()
    assert "root:" not in message


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "\xff"]
)
def test_other_content_types_are_refused(server: Server, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    with connect(server) as client:
        lines = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
        client.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            + lines.encode("latin-1")
            + b"Content-Length: 2\r\n\r\n{}"
        )
        answer = b"".join(itertools.takewhile(bool, iter(lambda: client.recv(65536), None)))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["param"] == "Content-Type"
