"""The ASGI types this folder speaks, and the two ways to answer in one piece.

Handlers are plain ASGI applications: `async def handle(scope, receive, send)`.

Runs in: API process. Owns: nothing. Knows nothing of: routes, the engine, wire formats.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Protocol

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Handler = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

JSON = b"application/json"
#: key of a `DirectWriter` in `scope["extensions"]`
DIRECT_WRITER = "octavo.direct_writer"


class DirectWriter(Protocol):
    """Sends pieces of a response's body without a coroutine; `send` begins and ends the response.

    What is between the server and the application sees nothing of them.
    """

    @property
    def is_ready(self) -> bool:
        """False if only `send` will do now: before the response has begun, after its end, while the
        client reads too slowly, and when it is gone."""

    def write(self, body: bytes) -> None:
        """Sends a piece that is not empty; `is_ready` must be True."""


def direct_writer(scope: Scope) -> DirectWriter | None:
    """The server's, if it offers one."""
    found: DirectWriter | None = scope.get("extensions", {}).get(DIRECT_WRITER)
    return found


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first value of a header (`name` in lower case), or None."""
    for key, value in scope["headers"]:
        if key == name:
            found: bytes = value
            return found
    return None


def route_path(scope: Scope) -> str:
    """The request's path without the root path of a proxy in front."""
    path: str = scope["path"]
    root_path: str = scope.get("root_path", "")
    if root_path and (path == root_path or path.startswith(root_path + "/")):
        return path[len(root_path) :] or "/"
    return path


async def respond(
    send: Send,
    status: int,
    body: bytes = b"",
    *,
    content_type: bytes = JSON,
    headers: Headers = (),
) -> None:
    """Sends a complete response; an empty body has no type."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                *([(b"content-type", content_type)] if body else []),
                (b"content-length", b"%d" % len(body)),
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})
