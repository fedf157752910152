"""Answers 503 from the moment of listening until the real server takes the socket over.

    GET /live      200 {"status": "starting", "phase": "loading weights"}
    anything else  503 with `Retry-After` and the error shape of the API

The event loop and the web stack are not there yet, so this is a thread with plain sockets. At the
take-over it stops accepting; what it has accepted it still answers, and what waits in the socket's
queue finds the real server: no connection is lost.

Runs in: API process, a thread of its own and one short-lived thread per connection.
Owns: the connections it accepted. Knows nothing of: the engine, ASGI.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from octavo.transport.process_name import name_thread

if TYPE_CHECKING:
    import ssl

RETRY_AFTER_S = 1
CLIENT_TIMEOUT_S = 5.0
MAX_HEAD_BYTES = 65536
MAX_CONNECTIONS = 64


class StartingResponder:
    """See the module. Start it right after `bind`, stop it right before the server starts.

    Args:
        listener: a listening, non-blocking socket.
        tls: wraps connections if the server speaks TLS.
        phase: what start-up is doing; set it as it goes on.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        tls: ssl.SSLContext | None = None,
        phase: str = "starting",
    ) -> None:
        self.phase = phase
        self._listener = listener
        self._tls = tls
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._accept, name="octavo-starting", daemon=True)

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Returns as soon as no more connections are accepted. Idempotent."""
        if self._wake_write < 0:
            return
        os.close(self._wake_write)
        self._wake_write = -1
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self._wake_read)

    def _accept(self) -> None:
        name_thread("octavo-starting")
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN | select.POLLHUP)
        while True:
            ready = [fd for fd, _ in poll.poll()]
            if self._wake_read in ready:
                return
            if not self._slots.acquire(timeout=0.05):
                continue  # many slow clients: the rest waits in the socket's queue
            try:
                connection, _ = self._listener.accept()
            except OSError:  # it was gone again
                self._slots.release()
                continue
            threading.Thread(
                target=self._answer, args=(connection,), name="octavo-starting-client", daemon=True
            ).start()

    def _answer(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(CLIENT_TIMEOUT_S)
            # a client that leaves or talks nonsense is its own loss
            with contextlib.suppress(OSError):
                self._exchange(connection)
        finally:
            connection.close()
            self._slots.release()

    def _exchange(self, connection: socket.socket) -> None:
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True)
        try:
            head = _read_head(connection)
            if head:
                connection.sendall(self._response(head))
                _finish(connection, is_tls=self._tls is not None)
        finally:
            connection.close()

    def _response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
        is_live = path == b"/live"
        content: dict[str, object] = {"status": "starting", "phase": self.phase}
        if not is_live:
            content["error"] = {
                "message": f"The server is starting ({self.phase}); please try again in a moment.",
                "type": "ServiceUnavailableError",
                "param": None,
                "code": 503,
            }
        body = msgspec.json.encode(content)
        lines = [
            b"HTTP/1.1 200 OK" if is_live else b"HTTP/1.1 503 Service Unavailable",
            b"content-type: application/json",
            b"content-length: %d" % len(body),
            b"retry-after: %d" % RETRY_AFTER_S,
            b"connection: close",
        ]
        return b"\r\n".join(lines) + b"\r\n\r\n" + (b"" if method == b"HEAD" else body)


def _read_head(connection: socket.socket) -> bytes:
    """The request line and headers; empty if the client left first."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < MAX_HEAD_BYTES:
        data = connection.recv(16384)
        if not data:
            return b""
        head += data
    return head


def _finish(connection: socket.socket, *, is_tls: bool) -> None:
    """Closes so that the answer arrives: unread bytes of a body would turn the close into a reset
    that may overtake it."""
    if is_tls:  # cannot be closed by halves
        connection.settimeout(0.2)
    else:
        connection.shutdown(socket.SHUT_WR)
    deadline_s = time.monotonic() + CLIENT_TIMEOUT_S
    while time.monotonic() < deadline_s and connection.recv(65536):
        pass
