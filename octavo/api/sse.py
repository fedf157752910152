"""Server-sent events, written straight to the ASGI server.

The response starts with the first event, so that a request which fails before its first output
still gets a plain error. After that, an error becomes an event (`data: {"error": ...}`), and every
stream ends with exactly one `data: [DONE]`.

Runs in: API process, event loop. Owns: the framing. Knows nothing of: what the events say.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from octavo.api.asgi import DirectWriter, Headers, Send

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold tokens back
]

_encode = msgspec.json.encode

#: the content of one `data:` line; Raw is encoded already
ServerEvent = msgspec.Struct | msgspec.Raw


def frame(events: Iterable[ServerEvent]) -> bytes:
    """The events as bytes, ready for one write."""
    parts: list[bytes] = []  # joined at the end: half the time of formatting each
    for event in events:
        parts += (b"data: ", _encode(event), b"\n\n")
    return b"".join(parts)


class EventStream:
    """One response of server-sent events.

    Args:
        send: of the ASGI server.
        headers: besides those of every stream.
        direct: the server's `DirectWriter`, if it has one.
    """

    def __init__(
        self, send: Send, headers: Headers = (), direct: DirectWriter | None = None
    ) -> None:
        self._send = send
        self._headers = headers
        self._direct = direct
        self._is_writing = False  # a `write` waits: what comes now must not overtake it
        self.started = False

    def can_write_now(self) -> bool:
        """True if `write_now` may be called: nothing would have to wait."""
        return self._direct is not None and not self._is_writing and self._direct.is_ready

    def write_now(self, data: bytes) -> None:
        """Sends framed bytes in one write, as `write` does."""
        assert self._direct is not None
        if data:
            self._direct.write(data)

    async def write(self, data: bytes) -> None:
        """Sends framed bytes in one write; nothing for empty data. Waits while the client reads
        too slowly."""
        if not data:
            return
        self._is_writing = True
        try:
            if not self.started:
                self.started = True
                await self._send(
                    {
                        "type": "http.response.start",
                        "status": 200,
                        "headers": [*STREAM_HEADERS, *self._headers],
                    }
                )
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            self._is_writing = False

    async def end(self, last: bytes = b"") -> None:
        """Sends `last`, `[DONE]` and the end of the response in one write."""
        assert self.started
        await self._send({"type": "http.response.body", "body": last + DONE, "more_body": False})
