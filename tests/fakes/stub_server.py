"""An HTTP server on loopback that answers as a test says, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import http.server
import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Asked:
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """What the server sends; `ends_early` breaks a chunked body off before its end."""

    status: int = 200
    body: bytes | Sequence[bytes] = b""  # pieces are sent one by one, chunked
    headers: dict[str, str] = field(default_factory=dict)
    ends_early: bool = False


def events(*objects: Any, done: bool = True) -> Reply:
    """A stream of server-sent events, one piece each."""
    pieces = [b"data: " + json.dumps(each).encode() + b"\n\n" for each in objects]
    return Reply(body=[*pieces, *([b"data: [DONE]\n\n"] if done else [])])


def json_reply(content: Any, status: int = 200) -> Reply:
    """A JSON answer in one piece."""
    return Reply(status, json.dumps(content).encode(), {"Content-Type": "application/json"})


MODELS = json_reply({"data": [{"id": "a-model", "root": "a-root"}]})

Answer = Callable[[Asked], Reply]


class Listener(http.server.ThreadingHTTPServer):
    """Says nothing about clients that leave: what it prints would be in a test's output."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class StubServer:
    """Listens until the block ends; `asked` is everything so far."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[Asked] = []
        self._answer = answer
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 10

            def do_GET(self) -> None:
                stub._handle(self)

            do_POST = do_PUT = do_GET  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = Listener(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def _handle(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length", 0))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        asked = Asked(handler.command, handler.path, headers, handler.rfile.read(length))
        self.asked.append(asked)
        reply = self._answer(asked)
        with contextlib.suppress(ConnectionError):  # the client has seen enough
            self._send(handler, reply)

    def _send(self, handler: http.server.BaseHTTPRequestHandler, reply: Reply) -> None:
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        if isinstance(reply.body, bytes):
            handler.send_header("Content-Length", str(len(reply.body)))
            handler.end_headers()
            handler.wfile.write(reply.body)
            return
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for piece in reply.body:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            handler.wfile.flush()
        if reply.ends_early:
            handler.close_connection = True
        else:
            handler.wfile.write(b"0\r\n\r\n")

    def __enter__(self) -> StubServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextlib.contextmanager
def answering(*replies: Reply, models: Reply = MODELS) -> Iterator[StubServer]:
    """A server that knows its models and gives these replies in order, the last one again and
    again."""
    left = list(replies)

    def answer(asked: Asked) -> Reply:
        if asked.method == "GET" and asked.path.endswith("/models"):
            return models
        return left.pop(0) if len(left) > 1 else left[0]

    with StubServer(answer) as server:
        yield server
