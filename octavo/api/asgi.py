"""The ASGI types this folder speaks, and the two ways to answer in one piece.

Handlers are plain ASGI applications: `async def handle(scope, receive, send)`.

Runs in: API process. Owns: nothing. Knows nothing of: routes, the engine, wire formats.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Handler = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

JSON = b"application/json"


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
    """Sends a complete response."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", content_type),
                (b"content-length", b"%d" % len(body)),
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})
