"""`--enable-request-id-headers`: every response carries the request's id in `X-Request-Id`.

Runs in: API process, event loop. Owns: nothing. Knows nothing of: routes.
"""

from __future__ import annotations

from octavo.api.asgi import Handler, Message, Receive, Scope, Send
from octavo.api.endpoint import request_id


class RequestIds:
    """ASGI middleware around everything else."""

    def __init__(self, app: Handler) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = request_id(scope).encode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", name)]
            await send(message)

        await self._app(scope, receive, send_with_id)
