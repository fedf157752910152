"""Which handler answers a request: an exact path in one dictionary look-up, then the few paths with
parameters.

Our own because a server needs its first answer sooner than a framework is imported; see
`docs/decisions/0006-web-stack.md`.

Runs in: API process, event loop. Owns: the routing table. Knows nothing of: what handlers do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from octavo.api.asgi import Handler, Receive, Scope, Send, route_path
from octavo.api.endpoint import Operation
from octavo.api.errors import send_error
from octavo.errors import MethodNotAllowed, NotFound
from octavo.wording import printable

MAX_SHOWN_PATH = 200

ByMethod = dict[str, Handler]


class Router:
    """An ASGI application of operations.

    A path may hold `{name}` (no slash) and `{name:path}` (any text); handlers find the values in
    `scope["path_params"]`. HEAD is answered like GET; the server leaves the body out.
    """

    def __init__(self, operations: Sequence[tuple[Operation, Handler]]) -> None:
        self._exact: dict[str, ByMethod] = {}
        self._patterns: list[tuple[re.Pattern[str], ByMethod]] = []
        for operation, handler in operations:
            if "{" not in operation.path:
                by_method = self._exact.setdefault(operation.path, {})
            else:
                by_method = {}
                self._patterns.append((_pattern(operation.path), by_method))
            for method in operation.methods:
                assert method not in by_method, f"{method} {operation.path} twice"
                by_method[method] = handler
            if "GET" in by_method:
                by_method.setdefault("HEAD", by_method["GET"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        assert scope["type"] == "http"
        path, method = route_path(scope), scope["method"]
        by_method = self._exact.get(path)
        allowed = set(by_method or ())
        handler = (by_method or {}).get(method)
        if handler is None:
            for pattern, candidates in self._patterns:
                match = pattern.fullmatch(path)
                if match is not None:
                    allowed |= set(candidates)
                    if method in candidates:
                        scope["path_params"] = match.groupdict()
                        handler = candidates[method]
                        break
        if handler is not None:
            await handler(scope, receive, send)
            return
        where = f"{method} {printable(path, MAX_SHOWN_PATH)}"
        if allowed:
            error = MethodNotAllowed(f"{where}: this route does not take this method.")
            allow = ", ".join(sorted(allowed)).encode()
            await send_error(send, error, [(b"allow", allow)])
        else:
            await send_error(send, NotFound(f"{where}: there is no such route."))


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)(:path)?\}", path)
    regex = re.escape(parts[0])
    for name, is_path, literal in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        regex += f"(?P<{name}>{'.+' if is_path else '[^/]+'})" + re.escape(literal)
    return re.compile(regex, re.DOTALL)


async def _live(receive: Receive, send: Send) -> None:
    """The ASGI lifespan protocol; there is nothing to do, the launcher has done it."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
