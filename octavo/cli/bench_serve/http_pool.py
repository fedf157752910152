"""`HttpPool`: many HTTP exchanges at a time over kept connections, with the time of each piece.

As little as possible happens between the socket and the clock: the client shares its cores with
the server it measures. A protocol per connection feeds httptools; no streams, no tasks per read.

Runs in: the event loop of the benchmark. Owns: the connections.
Knows nothing of: what the pieces mean.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self, cast
from urllib.parse import urlsplit

import httptools

from octavo.errors import ConfigError

#: takes a piece of a body and the time it came, `time.perf_counter()`
OnPiece = Callable[[bytes, float], None]


class Answered(NamedTuple):
    """Status line of an answer whose body has come to its end."""

    status: int
    reason: str


def reason_of(error: OSError) -> str:
    """What the system says of a failed exchange; asyncio's own words name only the address."""
    return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__


class HttpPool:
    """Exchanges with one server; the connections are closed at the end of its `async with`.

    Args:
        base_url: `http://host:port` or https; its path is put before every path.
        insecure: take any certificate.

    Raises:
        ConfigError: the URL is none.
    """

    def __init__(self, base_url: str, *, insecure: bool = False) -> None:
        parts = urlsplit(base_url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise ConfigError(f"the server's URL must look like http://host:8000, got {base_url!r}")
        self._host = parts.hostname
        self._port = port or (443 if parts.scheme == "https" else 80)
        self._prefix = parts.path.rstrip("/")
        self._netloc = parts.netloc.rpartition("@")[2]
        self._tls = _tls(insecure) if parts.scheme == "https" else None
        self._idle: list[_Connection] = []

    async def exchange(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        on_piece: OnPiece,
    ) -> Answered:
        """Sends a request and waits for the end of its answer.

        Args:
            on_piece: takes the pieces of the body as they come, of any status.

        Raises:
            OSError: there is no connection, or it broke before the answer was whole.
        """
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", f"Host: {self._netloc}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(body)}", "", ""]
        data = "\r\n".join(lines).encode("latin-1") + body
        while self._idle:
            connection = self._idle.pop()
            try:
                answered = await connection.exchange(data, on_piece)
            except _Stale:
                continue  # the server had closed it, as it may between two requests
            return self._keep(connection, answered)
        connection = await self._connect()
        return self._keep(connection, await connection.exchange(data, on_piece))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        await asyncio.sleep(0)  # sockets are closed in the loop's next turn

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(
            _Connection, self._host, self._port, ssl=self._tls
        )
        return protocol

    def _keep(self, connection: _Connection, answered: Answered) -> Answered:
        if connection.is_reusable:
            self._idle.append(connection)
        else:
            connection.close()
        return answered


class _Stale(Exception):
    """A kept connection turned out to be closed before anything of an answer came."""


class _Connection(asyncio.Protocol):
    """One connection; one exchange at a time. The methods without a docstring are callbacks of
    asyncio and httptools."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._done: asyncio.Future[Answered] | None = None
        self._on_piece: OnPiece = lambda piece, now: None
        self._now = 0.0
        self._num_exchanges = 0
        self._has_answer = False
        self._keeps_alive = False
        self._has_length = False
        self._answered = Answered(0, "")
        self._reason = b""

    @property
    def is_reusable(self) -> bool:
        """True if another exchange can follow."""
        return self._keeps_alive and self._transport is not None

    async def exchange(self, data: bytes, on_piece: OnPiece) -> Answered:
        """Raises OSError if the connection breaks, _Stale if it was closed before."""
        if self._transport is None or self._transport.is_closing():
            raise _Stale
        self._on_piece = on_piece
        self._parser = httptools.HttpResponseParser(self)
        self._has_answer = self._keeps_alive = self._has_length = False
        self._answered = Answered(0, "")
        self._reason = b""
        self._num_exchanges += 1
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        try:
            return await self._done
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes it at once. Idempotent."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._now = time.perf_counter()
        if self._parser is None:
            self.close()  # nobody asked
            return
        self._has_answer = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"the server's answer is not HTTP: {error}"))
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._done is None or self._done.done():
            return
        if not self._has_answer and self._num_exchanges > 1:
            self._fail(_Stale())
        elif self._answered.status and not self._has_length and error is None:
            # without a length the end of the connection is the end of the body
            self._done.set_result(self._answered)
        else:
            self._fail(error or ConnectionError("the server closed the connection"))

    def on_status(self, status: bytes) -> None:
        self._reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._has_length = True

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        self._answered = Answered(status, self._reason.decode("latin-1"))
        self._keeps_alive = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        self._on_piece(body, self._now)

    def on_message_complete(self) -> None:
        self._parser = None
        if self._done is not None and not self._done.done():
            self._done.set_result(self._answered)

    def _fail(self, error: BaseException) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)


def _tls(insecure: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
