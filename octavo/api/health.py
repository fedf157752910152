"""The probes and facts that need no key: /health /ready /live /ping /version /metrics, and /load.

`/health` is 200 while a completion can be answered, `/ready` also not while draining or stalled,
`/live` while the process runs. (Before the engine is ready, `octavo/api/starting.py` answers.)

Runs in: API process, event loop. Owns: nothing. Knows nothing of: requests.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from octavo.api.asgi import Receive, Scope, Send, header, respond
from octavo.api.endpoint import Operation
from octavo.errors import NotReady, Unauthorized
from octavo.frontend.async_llm import AsyncLLM

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: probes: open without a key, left out of the access log and of the HTTP metrics
PROBES = frozenset({"/health", "/ready", "/live", "/ping", "/metrics"})


class Status(msgspec.Struct):
    """What a probe says."""

    status: str


class Version(msgspec.Struct):
    """Answer of `GET /version`."""

    version: str


class ServerLoad(msgspec.Struct):
    """Answer of `GET /load`."""

    server_load: int


class Health:
    """The routes.

    Args:
        llm: the engine.
        version: of the package.
        render_metrics: the Prometheus page and its content type, for an `Accept` header.
        num_running: generation requests being answered; None: not counted
            (`--enable-server-load-tracking` is off).
        guard_metrics: /metrics needs the key, too.
    """

    def __init__(
        self,
        llm: AsyncLLM,
        *,
        version: str,
        render_metrics: Callable[[str], tuple[bytes, str]],
        num_running: Callable[[], int] | None,
        guard_metrics: bool,
    ) -> None:
        self._llm = llm
        self._version = version
        self._render_metrics = render_metrics
        self._num_running = num_running
        self._guard_metrics = guard_metrics

    def operations(self) -> list[Operation]:
        """The routes."""

        def probe(path: str, handler: Callable[..., object], summary: str) -> Operation:
            methods = ("GET", "POST") if path == "/ping" else ("GET",)
            return Operation(
                methods,
                path,
                handler,  # type: ignore[arg-type]
                summary,
                "server",
                response=Status,
                errors=() if path == "/live" else (NotReady,),
                is_open=True,
            )

        return [
            probe("/health", self._health, "Can completions be answered?"),
            probe("/ping", self._health, "The same, for SageMaker"),
            probe("/ready", self._ready, "Should traffic be sent here?"),
            probe("/live", self._live, "Does the process run?"),
            Operation(
                ("GET",),
                "/version",
                self._show_version,
                "Version of the server",
                "server",
                response=Version,
                is_open=True,
            ),
            Operation(
                ("GET",),
                "/metrics",
                self._metrics,
                "Prometheus metrics",
                "server",
                response=METRICS_TYPE,
                errors=(Unauthorized,) if self._guard_metrics else (),
                is_open=not self._guard_metrics,
            ),
            Operation(
                ("GET",),
                "/load",
                self._load,
                "Generation requests being answered (with --enable-server-load-tracking)",
                "server",
                response=ServerLoad,
                errors=(Unauthorized,),
            ),
        ]

    def _state(self) -> str:
        if self._llm.dead_reason is not None:
            return "dead"
        return "ok" if self._llm.is_running else "starting"

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _answer(send, self._state())

    async def _ready(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = self._state()
        if state == "ok" and self._llm.is_draining:
            state = "draining"
        elif state == "ok" and self._llm.is_stalled():
            state = "stalled"
        await _answer(send, state)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _answer(send, "ok")

    async def _show_version(self, scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, msgspec.json.encode(Version(self._version)))

    async def _metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        accept = header(scope, b"accept") or b""
        page, content_type = self._render_metrics(accept.decode("latin-1"))
        await respond(send, 200, page, content_type=content_type.encode())

    async def _load(self, scope: Scope, receive: Receive, send: Send) -> None:
        load = 0 if self._num_running is None else self._num_running()
        await respond(send, 200, msgspec.json.encode(ServerLoad(load)))


async def _answer(send: Send, state: str) -> None:
    headers = [] if state == "ok" else [(b"retry-after", b"1")]
    status = 200 if state == "ok" else 503
    await respond(send, status, msgspec.json.encode(Status(state)), headers=headers)
