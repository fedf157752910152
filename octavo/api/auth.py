"""Keys: which requests must carry one, and whether it is right.

Everything needs a key but the operations that say they are open (probes, version, metrics) and
`OPTIONS`, which browsers send without one.

Runs in: API process, event loop. Owns: the digests of the keys. Knows nothing of: what routes do.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Sequence

from octavo.api.asgi import Handler, Receive, Scope, Send, header, route_path
from octavo.api.errors import send_error
from octavo.errors import Unauthorized


class Authentication:
    """ASGI middleware: 401 in OpenAI's shape unless a key of the server comes with the request.

    Args:
        app: what is guarded.
        keys: any of them opens; `Authorization: Bearer <key>` or `x-api-key: <key>`.
        open_paths: need none.
    """

    def __init__(self, app: Handler, keys: Sequence[str], open_paths: Collection[str]) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["method"] == "OPTIONS"
            or route_path(scope) in self._open_paths
            or self._has_key(scope)
        ):
            await self._app(scope, receive, send)
        else:
            await send_error(
                send,
                Unauthorized(
                    "Missing or wrong API key: send it as `Authorization: Bearer KEY` or as "
                    "`x-api-key: KEY`."
                ),
            )

    def _has_key(self, scope: Scope) -> bool:
        given = header(scope, b"x-api-key")
        if given is None:
            authorization = header(scope, b"authorization") or b""
            scheme, _, given = authorization.partition(b" ")
            if scheme.lower() != b"bearer":
                return False
        digest = _digest(given.strip())
        # compares with every key, and whole digests: time tells nothing
        matches = [hmac.compare_digest(digest, key) for key in self._digests]
        return any(matches)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
