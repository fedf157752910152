"""Counts requests and their time for `http_requests_total` and `http_request_duration_seconds`.

Runs in: API process, event loop. Owns: nothing; the numbers go to the observer.
Knows nothing of: Prometheus.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from octavo.api.asgi import Handler, Message, Receive, Scope, Send, route_path

#: (method, path of the route, status class such as "2xx", seconds)
HttpObserver = Callable[[str, str, str, float], None]

NO_ROUTE = "none"


class HttpMetrics:
    """ASGI middleware around everything else.

    Args:
        app: what is measured.
        observe: takes each request when its response is complete.
        ignored: paths that are not counted.

    Requests without a route are counted under one name, so that a scanner cannot make as many time
    series as it likes.
    """

    def __init__(self, app: Handler, observe: HttpObserver, ignored: Collection[str]) -> None:
        self._app = app
        self._observe = observe
        self._ignored = frozenset(ignored)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or route_path(scope) in self._ignored:
            await self._app(scope, receive, send)
            return
        status = 500  # if no response was started

        async def send_and_see(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        start_s = time.perf_counter()
        try:
            await self._app(scope, receive, send_and_see)
        finally:
            self._observe(
                scope["method"],
                scope.get("octavo.route", NO_ROUTE),
                f"{status // 100}xx",
                time.perf_counter() - start_s,
            )
