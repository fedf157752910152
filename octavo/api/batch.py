"""A batch of requests in OpenAI's file format, answered by the routes without a socket.

    {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
    {"id": "octavo-...", "custom_id": "a", "response": {"status_code": 200, "request_id": "...",
     "body": {...}}, "error": null}

Every line of the input has one line of output, in the same order; a line that cannot be served has
its reason and does not touch the others.

Neighbours: `octavo/api/app.py` (makes the routes), `octavo/launch/batch.py` (caller).
Runs in: API process, event loop. Owns: lines in flight. Knows nothing of: files, the engine.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from octavo.api.asgi import Handler, Message
from octavo.api.errors import openai_error, row_of
from octavo.errors import InvalidParameter, NotFound, RequestError
from octavo.wording import shown

#: routes a line may name
ROUTES = ("/v1/chat/completions", "/v1/completions")

Write = Callable[[bytes], None]


class BatchLine(msgspec.Struct):
    """A line of the input. `body` stays as it was written: the route reads it."""

    custom_id: str
    url: str
    body: msgspec.Raw
    method: str = "POST"


class _Named(msgspec.Struct):
    """What an unfit line may still tell."""

    custom_id: str | None = None


class _Streamed(msgspec.Struct):
    stream: bool | None = None


class BatchResponse(msgspec.Struct):
    """What the route answered; a refusal's body is `{"error": {...}}`."""

    status_code: int
    request_id: str
    body: msgspec.Raw


class BatchOutput(msgspec.Struct):
    """A line of the output; `error` repeats that of the body."""

    id: str
    custom_id: str | None
    response: BatchResponse
    error: Any


class Counts(msgspec.Struct):
    """How a batch ended."""

    answered: int = 0
    failed: int = 0


class BatchRunner:
    """Answers lines.

    Args:
        app: the routes.
        max_concurrency: lines in flight at a time.
        on_done: called after each line.
    """

    def __init__(
        self, app: Handler, *, max_concurrency: int, on_done: Callable[[], None] = lambda: None
    ) -> None:
        self._app = app
        self._max_concurrency = max_concurrency
        self._on_done = on_done
        self._num_running = 0
        self._line_ended = asyncio.Event()

    async def run(self, lines: Sequence[bytes], write: Write) -> Counts:
        """Answers all lines.

        Args:
            lines: without their line ends; empty ones are left out.
            write: takes the lines of output, in order, as early as order allows.
        """
        counts = Counts()
        waiting: dict[int, bytes] = {}  # ended before a line in front of them
        num_written = 0

        async def work(left: Iterator[tuple[int, bytes]]) -> None:
            nonlocal num_written
            for index, line in left:
                output = await self._answer(line)
                if output.error is None:
                    counts.answered += 1
                else:
                    counts.failed += 1
                waiting[index] = msgspec.json.encode(output)
                while num_written in waiting:
                    write(waiting.pop(num_written) + b"\n")
                    num_written += 1
                self._on_done()

        left = enumerate(line for line in lines if line.strip())
        tasks = [
            asyncio.create_task(work(left)) for _ in range(min(self._max_concurrency, len(lines)))
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return counts

    async def _answer(self, text: bytes) -> BatchOutput:
        request_id = f"octavo-batch-{secrets.token_hex(16)}"
        custom_id: str | None = None
        try:
            line = _parse(text)
            custom_id = line.custom_id
            _check(line)
            status, body = await self._call_patiently(line, request_id)
        except RequestError as error:
            if custom_id is None:
                custom_id = _custom_id(text)
            status, body = row_of(error).status, msgspec.json.encode(openai_error(error))
        failure = None if status == 200 else msgspec.json.decode(body)["error"]
        response = BatchResponse(status, request_id, msgspec.Raw(body))
        return BatchOutput(f"octavo-{secrets.token_hex(16)}", custom_id, response, failure)

    async def _call_patiently(self, line: BatchLine, request_id: str) -> tuple[int, bytes]:
        """Asks again when the engine's queue is full, as long as other lines are on their way."""
        while True:
            self._num_running += 1
            try:
                status, body = await self._call(line, request_id)
            finally:
                self._num_running -= 1
                ended, self._line_ended = self._line_ended, asyncio.Event()
                ended.set()
            if status != 503 or not self._num_running:
                return status, body
            await self._line_ended.wait()

    async def _call(self, line: BatchLine, request_id: str) -> tuple[int, bytes]:
        """One call of the routes as a server would make it."""
        scope = {
            "type": "http",
            "method": "POST",
            "path": line.url,
            "query_string": b"",
            "headers": [
                (b"content-type", b"application/json"),
                (b"x-request-id", request_id.encode()),
            ],
        }
        messages: list[Message] = [{"type": "http.request", "body": bytes(line.body)}]
        status = 0
        pieces: list[bytes] = []

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await asyncio.Event().wait()  # this client does not leave
            raise AssertionError

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                pieces.append(message.get("body", b""))

        await self._app(scope, receive, send)
        return status, b"".join(pieces)


def _parse(text: bytes) -> BatchLine:
    try:
        return msgspec.json.decode(text, type=BatchLine)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParameter(f"This line is no batch request: {error}.") from None


def _custom_id(text: bytes) -> str | None:
    """The id of a line that is otherwise wrong, if it has one."""
    try:
        return msgspec.json.decode(text, type=_Named).custom_id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _check(line: BatchLine) -> None:
    if line.method != "POST":
        raise InvalidParameter(f"method must be POST, got {shown(line.method)}.", param="method")
    if line.url not in ROUTES:
        raise NotFound(
            f"url must be one of {', '.join(ROUTES)}, got {shown(line.url)}.", param="url"
        )
    try:
        is_stream = msgspec.json.decode(line.body, type=_Streamed).stream
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return  # the route has the better words
    if is_stream:
        raise InvalidParameter(
            "stream must be false in a batch: each answer is one line.", param="stream"
        )
