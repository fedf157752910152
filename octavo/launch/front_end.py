"""The API process's half of the server: the application on uvicorn.

Apart from `octavo/launch/serve.py` because importing it takes a third of the start-up: the core's
process starts meanwhile.

Runs in: API process, main thread. Owns: the end of the application.
Knows nothing of: flags, scheduling.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
from contextlib import ExitStack

import uvloop

from octavo.api.server import serve
from octavo.api.starting import StartingResponder
from octavo.config.engine import EngineConfig
from octavo.config.server import ServerConfig
from octavo.errors import EngineDead
from octavo.frontend.core_manager import CoreEngineProcManager
from octavo.launch.application import Application
from octavo.messages.engine import Ready
from octavo.metrics.startup import StartupTimeline
from octavo.transport.start_signals import StartSignals

logger = logging.getLogger(__name__)

#: how long the core may take to end once the server has drained
CORE_SHUTDOWN_S = 2.0


class FrontEnd:
    """Serves the application.

    Args:
        config: the engine's.
        server: the HTTP side's.
        manager: of the core, which is starting.
        responder: answers 503 until the server takes over.
        listener: the bound socket.
        signals: end the process until the server handles them.
        timeline: takes the phases from here on.
    """

    def __init__(
        self,
        config: EngineConfig,
        server: ServerConfig,
        manager: CoreEngineProcManager,
        responder: StartingResponder,
        listener: socket.socket,
        signals: StartSignals,
        timeline: StartupTimeline,
    ) -> None:
        self._config = config
        self._server = server
        self._manager = manager
        self._responder = responder
        self._listener = listener
        self._signals = signals
        self._timeline = timeline
        self._application = Application(config, server, manager, on_phase=timeline.end)

    def serve(self, stack: ExitStack) -> int:
        """Waits for the core, then serves until the end; returns the exit code."""
        ready = self._manager.ready.result()
        self._timeline.end("wait for EngineCore")
        self._timeline.add(ready.phases)
        self._application.core_is_ready(ready, stack)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(self._run(ready))

    async def _run(self, ready: Ready) -> int:
        llm = self._application.llm
        llm.start(ready)
        try:
            await serve(
                self._application.app,
                self._listener,
                llm,
                self._server,
                responder=self._responder,
                on_ready=self._on_ready,
            )
        except EngineDead as error:
            logger.error("%s", error.message)
            return 1
        finally:
            await llm.shutdown(CORE_SHUTDOWN_S)
        return 0

    def _on_ready(self) -> None:
        """The server answers: what start-up has made is never collected, and the clock stops."""
        self._signals.release()  # the event loop has them since before this
        gc.freeze()
        gc.enable()
        logger.debug(
            "Garbage collector: %d objects of the start are frozen.", gc.get_freeze_count()
        )
        self._timeline.end("take the socket over")
        self._timeline.finish(self._config.observability.startup_trace, pid=os.getpid())
