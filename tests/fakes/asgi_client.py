"""An HTTP client that calls an ASGI application directly, and can see a stream event by event and
leave in the middle."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from octavo.api.asgi import DIRECT_WRITER

App = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass
class Answer:
    """A complete response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error in OpenAI's shape; fails if it is not that."""
        content = self.json
        assert set(content) == {"error"}
        error: dict[str, Any] = content["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        return error

    @property
    def events(self) -> list[str]:
        """Payloads of the `data:` lines."""
        return split_events(self.body)

    @property
    def chunks(self) -> list[Any]:
        """The events of a stream that ended well, decoded, without `[DONE]`."""
        assert self.status == 200, self.body
        events = self.events
        assert events.count("[DONE]") == 1
        assert events[-1] == "[DONE]"
        return [json.loads(event) for event in events[:-1]]


def split_events(body: bytes) -> list[str]:
    frames = body.split(b"\n\n")
    assert frames.pop() == b"", "the stream does not end with a frame"
    return [f[6:].decode() for f in frames if f.startswith(b"data: ")]


class Exchange:
    """One request in flight, and its `DirectWriter`: it reads fast unless `pause` was called."""

    def __init__(
        self, app: App, scope: dict[str, Any], body: list[bytes], never_ends: bool
    ) -> None:
        self.writes: list[bytes] = []
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self._body = body
        self._never_ends = never_ends
        self._left = asyncio.Event()
        self._changed = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self.num_direct_writes = 0
        self.is_complete = False
        scope.setdefault("extensions", {})[DIRECT_WRITER] = self
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            chunk = self._body.pop(0)
            return {
                "type": "http.request",
                "body": chunk,
                "more_body": bool(self._body) or self._never_ends,
            }
        await self._left.wait()
        return {"type": "http.disconnect"}

    @property
    def is_ready(self) -> bool:
        return self.status is not None and not self.is_complete and self._may_write.is_set()

    def write(self, body: bytes) -> None:
        assert self.is_ready
        assert body
        self.writes.append(body)
        self.num_direct_writes += 1
        self._changed.set()

    def pause(self) -> None:
        """The client reads no more: `send` waits."""
        self._may_write.clear()

    def resume(self) -> None:
        self._may_write.set()

    async def _send(self, message: dict[str, Any]) -> None:
        if not self._may_write.is_set():
            await self._may_write.wait()
            for _ in range(10):  # others run between the wake-up of a task and its going on
                await asyncio.sleep(0)
        if message["type"] == "http.response.start":
            assert self.status is None, "the response started twice"
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            assert self.status is not None
            assert not self.is_complete, "bytes after the end"
            if message.get("body"):
                self.writes.append(message["body"])
            self.is_complete = not message.get("more_body", False)
        self._changed.set()

    def leave(self) -> None:
        """The client goes away."""
        self._left.set()

    async def has_writes(self, count: int) -> None:
        """Waits until the response body came in at least `count` pieces."""
        async with asyncio.timeout(5):
            while len(self.writes) < count:
                self._changed.clear()
                await self._changed.wait()

    async def ended(self) -> None:
        """Waits until the application has returned."""
        async with asyncio.timeout(5):
            await self.task

    async def answer(self) -> Answer:
        """Waits for the complete response."""
        await self.ended()
        assert self.is_complete, "the response did not end"
        assert self.status is not None
        return Answer(self.status, self.headers, b"".join(self.writes))


class AsgiClient:
    """Makes requests to `app`."""

    def __init__(self, app: App) -> None:
        self.app = app

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        content_type: str | None = "application/json",
        root_path: str = "",
        pieces: int = 1,
        never_ends: bool = False,
    ) -> Exchange:
        """Starts a request. Bytes are sent as they are, anything else as JSON; with `never_ends`
        more is announced than comes."""
        data = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        names = {"host": "testserver", **{k.lower(): v for k, v in (headers or {}).items()}}
        if body is not None and content_type is not None:
            names["content-type"] = content_type
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": root_path + path,
            "raw_path": (root_path + path).encode(),
            "query_string": query.encode(),
            "root_path": root_path,
            "headers": [(k.encode(), v.encode("latin-1")) for k, v in names.items()],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8000),
            "state": {},
        }
        size = max(1, -(-len(data) // pieces))
        chunks = [data[i : i + size] for i in range(0, len(data), size)] or [b""]
        return Exchange(self.app, scope, chunks, never_ends)

    async def request(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        """One exchange."""
        return await self.send(method, path, body, **options).answer()

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.request("GET", path, **options)

    async def post(self, path: str, body: Any, **options: Any) -> Answer:
        return await self.request("POST", path, body, **options)

    async def chat(self, text: str = "abc", **fields: Any) -> Answer:
        """A chat with one user message."""
        messages = [{"role": "user", "content": text}]
        return await self.post("/v1/chat/completions", {"messages": messages, **fields})

    async def complete(self, prompt: Any = "abc", **fields: Any) -> Answer:
        """A completion."""
        return await self.post("/v1/completions", {"prompt": prompt, **fields})
