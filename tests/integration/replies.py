"""Reading streams of a real server as its clients do."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

from tests.integration.server import Server, Stream

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def user(text: str) -> list[dict[str, str]]:
    """One user message."""
    return [{"role": "user", "content": text}]


def chunks(server: Server, path: str, body: dict[str, Any]) -> list[Any]:
    """The events of a stream, decoded; fails unless it ends with `[DONE]`, said once."""
    with Stream(server, path, body) as stream:
        assert stream.status == 200, stream.file.read()
        events = list(stream.events())
    assert events[-1] == "[DONE]"
    assert events.count("[DONE]") == 1
    return [json.loads(event) for event in events[:-1]]


def text_of(events: list[Any], index: int = 0) -> str:
    """The text of one choice, of a chat or a completion."""
    parts = [c for event in events for c in event["choices"] if c["index"] == index]
    return "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in parts)


def reasons_of(events: list[Any], index: int = 0) -> list[str]:
    """The finish reasons of one choice that are not null, in order."""
    parts = [c for event in events for c in event["choices"] if c["index"] == index]
    return [c["finish_reason"] for c in parts if c["finish_reason"] is not None]


def refused(server: Server, path: str, body: Any, status: int = 400) -> dict[str, Any]:
    """The error of a request that must be refused; fails unless it is JSON in OpenAI's shape, sent
    whole, and the server goes on answering."""
    got, headers, data = server.request("POST", path, body)
    assert got == status, data
    assert headers["content-type"] == "application/json"
    assert int(headers["content-length"]) == len(data)
    content = json.loads(data, parse_constant=_no_constant)
    assert set(content) == {"error"}
    error: dict[str, Any] = content["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    server.is_alive()
    return error


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def send(server: Server, path: str, body: dict[str, Any]) -> socket.socket:
    """A request that nobody waits for; closing the socket is how its client leaves."""
    data = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    connection.sendall(
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n".encode()
        + data
    )
    return connection


def wait_idle(server: Server, limit_s: float = 1.0) -> None:
    """Until no request runs or waits and no block of the KV cache is in use."""
    deadline = time.monotonic() + limit_s
    while load(server) != (0, 0, 0):
        assert time.monotonic() < deadline, f"after {limit_s} s still {load(server)}"


def load(server: Server) -> tuple[float, float, float]:
    """Requests running, requests waiting, share of the KV cache in use."""
    running, waiting, usage = (
        server.metric(f"vllm:{name}")
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    )
    return running, waiting, usage
