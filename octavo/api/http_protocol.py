"""uvicorn's HTTP/1.1 connection, made safe against clients that do not mean well.

    too large a head       431, whatever a client pours in, also behind a body (trailers)
    too slow               408: a head must be there in time, a body must not stand still
    not HTTP               400; all three in the API's error shape
    Upgrade: <anything>    ignored, as HTTP says of what a server does not know (uvicorn loses the
                           body that comes with it; Java's client asks for h2c with every POST)
    client gone            every request of the connection learns of it, not only the last one

It also offers to write pieces of a body without a coroutine (`DirectWriter`): a stream's tokens.

Runs in: API process, event loop, one object per connection. Owns: these limits.
Knows nothing of: routes, keys, the engine.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any, Final

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from octavo.api.asgi import DIRECT_WRITER
from octavo.api.errors import openai_error, row_of
from octavo.errors import HeadTooLarge, RequestError, RequestTooSlow

MAX_HEAD_BYTES: Final = 65536
_PHRASES: Final = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
}


class _CycleWriter:
    """`DirectWriter` of one response: what uvicorn's `send` does once everything was checked."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    @property
    def is_ready(self) -> bool:
        cycle = self._cycle
        return (
            cycle.response_started
            and cycle.chunked_encoding is True
            and not cycle.response_complete
            and not cycle.disconnected
            and not cycle.flow.write_paused
            # closed by the other side, which the protocol is told in a later turn of the loop
            and not cycle.transport.is_closing()
        )

    def write(self, body: bytes) -> None:
        self._cycle.transport.write(b"".join((b"%x\r\n" % len(body), body, b"\r\n")))


class _Reading(Enum):
    """What the next byte belongs to."""

    NOTHING = auto()  # between requests
    HEAD = auto()
    BODY = auto()


class HttpProtocol(HttpToolsProtocol):
    """One connection. uvicorn makes it; see the module for what differs."""

    #: from the start of a connection, or the first byte of a later request, to its last header; and
    #: between two pieces of a body
    limit_s = 60.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._running: RequestResponseCycle | None = None  # the request being answered
        self._reading = _Reading.HEAD
        self._num_head_bytes = 0  # of a head, and of trailers behind a body
        self._is_counted = False  # what is being read is nothing else
        self._timer: asyncio.TimerHandle | None = None

    # connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self._disconnect_running()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        was_reading, self._is_counted = self._reading, True
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on_without_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            self._refuse(RequestError("The request is not valid HTTP."))
            return
        if self._is_counted and self._reading is not _Reading.NOTHING:
            self._num_head_bytes += len(data)
            if self._num_head_bytes > MAX_HEAD_BYTES:
                message = f"The request's headers are larger than {MAX_HEAD_BYTES} bytes."
                self._refuse(HeadTooLarge(message))
                return
        if self._reading is _Reading.HEAD:
            if self._timer is None:
                self._watch()
        elif self._reading is _Reading.BODY:
            self._watch()
        elif was_reading is _Reading.NOTHING and self._is_idle:  # empty lines, which HTTP allows
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    # parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reading = _Reading.HEAD
        self._num_head_bytes = 0

    def on_headers_complete(self) -> None:
        self._reading = _Reading.BODY
        self._num_head_bytes, self._is_counted = 0, False
        self._unwatch()
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reading is _Reading.HEAD:  # nobody waits for trailers
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._num_head_bytes, self._is_counted = 0, False
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._reading = _Reading.NOTHING
        self._is_counted = False
        self._unwatch()
        super().on_message_complete()

    def _should_upgrade(self) -> bool:
        """True makes uvicorn leave the message alone; `data_received` deals with it."""
        return True

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        extensions: dict[str, Any] = cycle.scope.setdefault("extensions", {})
        extensions[DIRECT_WRITER] = _CycleWriter(cycle)
        super()._start_asgi_task(cycle, app)

    # limits

    @property
    def _is_idle(self) -> bool:
        return self._running is None or self._running.response_complete

    def _watch(self) -> None:
        self._unwatch()
        self._timer = self.loop.call_later(self.limit_s, self._on_limit)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_limit(self) -> None:
        self._timer = None
        if self.flow.read_paused:
            self._watch()  # it is not the client that makes us wait
        else:
            message = f"The request did not arrive within {self.limit_s:g} seconds."
            self._refuse(RequestTooSlow(message))

    def _refuse(self, error: RequestError) -> None:
        """Answers, unless bytes of another answer are under way, and closes the connection."""
        self._unwatch()
        if self.transport.is_closing():
            return
        if self._is_idle or not self.cycle.response_started:
            status, body = row_of(error).status, msgspec.json.encode(openai_error(error))
            self.transport.write(
                b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
                b"connection: close\r\n\r\n%b"
                % (status, _PHRASES[status].encode(), len(body), body)
            )
        self._disconnect_running()
        self.transport.close()

    def _disconnect_running(self) -> None:
        """uvicorn tells only the last request of a connection that it has ended."""
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()

    # upgrades

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """Parses the message again as if it did not ask for an upgrade; `rest` is what follows its
        head."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(RequestError("CONNECT: this server is not a proxy."))
            return
        head = b"%b %b HTTP/%b\r\n" % (method, self.url, self.parser.get_http_version().encode())
        for name, value in self.headers:
            if name == b"upgrade":
                continue
            if name == b"connection":
                options = [option.strip() for option in value.split(b",")]
                value = b", ".join(o for o in options if o.lower() != b"upgrade")
            head += b"%b: %b\r\n" % (name, value)
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(head + b"\r\n" + rest)
