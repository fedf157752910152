"""uvicorn on the socket that `octavo/api/listener.py` made, from readiness to the last byte.

    first SIGTERM or SIGINT   readiness 503 and new requests refused at once; running ones go on,
                              at most `--shutdown-timeout` seconds, then they get an error
    second signal             the end, at once
    dead engine               running requests get an error, then the end

Runs in: API process, main thread. Owns: the signal handlers while it serves, and the server.
Knows nothing of: routes, processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator

from uvicorn.config import Config as UvicornConfig
from uvicorn.server import Server as UvicornServer

from octavo.api.access_log import configure_access_log
from octavo.api.asgi import Handler
from octavo.api.http_protocol import HttpProtocol
from octavo.api.starting import StartingResponder
from octavo.config.server import ServerConfig
from octavo.errors import EngineDead
from octavo.frontend.async_llm import AsyncLLM

logger = logging.getLogger(__name__)

#: time for the last bytes to reach clients once every request has ended
FLUSH_LIMIT_S = 2.0
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Server(UvicornServer):
    """uvicorn without its own signal handling, woken instead of polling for its end."""

    def __init__(self, config: UvicornConfig, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._stop = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # refreshes the Date header
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), 1.0)

    def stop(self, *, at_once: bool = False) -> None:
        self.should_exit = True
        if at_once:
            self.force_exit = True
            for connection in list(self.server_state.connections):
                connection.transport.abort()
        self._stop.set()


async def serve(
    app: Handler,
    listener: socket.socket,
    llm: AsyncLLM,
    config: ServerConfig,
    *,
    responder: StartingResponder | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Serves until a signal or the engine's death; the listener is closed afterwards.

    Args:
        app: from `build_app`.
        listener: from `bind`.
        llm: started.
        responder: answers on the listener until now; stopped here.
        on_ready: called once the server accepts connections.

    Raises:
        EngineDead: the engine died; the message has the cause.
    """
    server = _Server(_uvicorn_config(app, config), on_ready)
    configure_access_log(
        enabled=not config.disable_uvicorn_access_log,
        quiet_paths=config.disable_access_log_for_endpoints,
    )
    end = _End(server, llm, config.shutdown_timeout_s)
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, end.on_signal, number)
    death = loop.create_task(end.on_death(), name="octavo-engine-watch")
    try:
        if responder is not None:
            responder.stop()
        await server.serve(sockets=[listener])
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        death.cancel()
        end.cancel()
    if end.cause is not None:
        raise EngineDead(end.cause)


class _End:
    """Decides how the server ends."""

    def __init__(self, server: _Server, llm: AsyncLLM, timeout_s: float) -> None:
        self.cause: str | None = None  # the engine's last words
        self._server = server
        self._llm = llm
        self._timeout_s = timeout_s
        self._drain: asyncio.Task[None] | None = None

    def on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._drain is None:
            logger.info("Received %s: shutting down, no new requests are taken.", name)
            self._drain = asyncio.get_running_loop().create_task(
                self._drain_and_stop(), name="octavo-drain"
            )
        else:
            logger.warning("Received %s again: ending at once.", name)
            self._server.stop(at_once=True)

    async def on_death(self) -> None:
        self.cause = await self._llm.wait_dead()
        logger.error("The engine core is dead: %s", self.cause)
        self._server.stop()

    def cancel(self) -> None:
        if self._drain is not None:
            self._drain.cancel()

    async def _drain_and_stop(self) -> None:
        num_running = self._llm.num_unfinished_requests
        if num_running:
            logger.info(
                "Waiting at most %g s for %d running requests.", self._timeout_s, num_running
            )
        if not await self._llm.drain(self._timeout_s):
            logger.warning("The time limit is reached: the remaining requests got an error.")
        self._server.stop()


def _uvicorn_config(app: Handler, config: ServerConfig) -> UvicornConfig:
    return UvicornConfig(
        app,
        loop="uvloop",
        http=HttpProtocol,
        ws="none",
        lifespan="on",  # users wait for its "Application startup complete."
        interface="asgi3",
        log_config=None,
        log_level=config.uvicorn_log_level,
        access_log=not config.disable_uvicorn_access_log,
        proxy_headers=True,
        root_path=config.root_path or "",
        server_header=False,
        timeout_keep_alive=config.http_timeout_keep_alive_s,
        timeout_graceful_shutdown=int(FLUSH_LIMIT_S),
        ssl_certfile=config.ssl_certfile,
        ssl_keyfile=config.ssl_keyfile,
        ssl_ca_certs=config.ssl_ca_certs,
        ssl_cert_reqs=config.ssl_cert_reqs,
    )
