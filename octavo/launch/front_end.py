"""The API process's half of the server: tokenizer, AsyncLLM, app, uvicorn.

Apart from `octavo/launch/serve.py` because importing it takes a third of the start-up: the core's
process starts meanwhile.

Runs in: API process, main thread. Owns: the objects of the front end and their end.
Knows nothing of: flags, scheduling.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack

import uvloop

from octavo import __version__
from octavo.api.app import build_app
from octavo.api.server import serve
from octavo.api.starting import StartingResponder
from octavo.config.engine import EngineConfig
from octavo.config.server import ServerConfig
from octavo.errors import EngineDead
from octavo.frontend.admission import AdmissionControl
from octavo.frontend.async_llm import AsyncLLM
from octavo.frontend.core_manager import CoreEngineProcManager
from octavo.frontend.input_processor import InputProcessor
from octavo.frontend.output_processor import OutputProcessor
from octavo.frontend.zmq_client import ZmqCoreClient
from octavo.launch.chat_template import chat_template_of
from octavo.launch.grammar_check import make_grammar_checker
from octavo.messages.engine import Ready
from octavo.metrics.engine_metrics import EngineMetrics
from octavo.metrics.http_metrics import HttpMetrics
from octavo.metrics.log_stats import StatsLogger
from octavo.metrics.prometheus import Prometheus
from octavo.metrics.startup import StartupTimeline
from octavo.metrics.stats import StatsRecorder
from octavo.tokenizer.chat_template import ChatTemplate
from octavo.tokenizer.tokenizer import Tokenizer, load_tokenizer
from octavo.transport.start_signals import StartSignals

logger = logging.getLogger(__name__)

#: how long the core may take to end once the server has drained
CORE_SHUTDOWN_S = 2.0


class FrontEnd:
    """Everything of the API process that needs the configuration.

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
        model = config.model
        tokenizer = None if model.skip_tokenizer_init else load_tokenizer(model.tokenizer_path)
        timeline.end("tokenizer")
        admission = AdmissionControl(config.scheduler)
        engine_metrics = EngineMetrics(
            model.max_model_len, config.observability.custom_histogram_buckets
        )
        http_metrics = HttpMetrics()
        self._prometheus = Prometheus(
            model.served_model_names[0], engine_metrics, http_metrics, admission.num_rejected
        )
        recorders: list[StatsRecorder] = [engine_metrics]
        self._stats_logger: StatsLogger | None = None
        if config.observability.log_stats:
            self._stats_logger = StatsLogger(device=config.device.device)
            recorders.append(self._stats_logger)
        self.llm = AsyncLLM(
            config=config,
            tokenizer=tokenizer,
            core_client=ZmqCoreClient(manager),
            input_processor=InputProcessor(model, tokenizer),
            output_processor=OutputProcessor(
                tokenizer, stream_interval=config.scheduler.stream_interval
            ),
            admission=admission,
            grammars=make_grammar_checker(config, tokenizer),
            recorders=recorders,
            stall_limit_s=config.observability.stall_limit_s,
        )
        make_template = _template_maker(tokenizer)
        template = chat_template_of(model, tokenizer)
        self._app = build_app(
            self.llm,
            server,
            version=__version__,
            template=template,
            make_template=make_template,
            render_metrics=self._prometheus.render,
            observe_http=http_metrics.observe,
        )
        timeline.end("build app")

    def serve(self, stack: ExitStack) -> int:
        """Waits for the core, then serves until the end; returns the exit code."""
        ready = self._manager.ready.result()
        self._timeline.end("wait for EngineCore")
        self._timeline.add(ready.phases)
        self._prometheus.set_cache_info(self._config.cache, ready)
        if self._stats_logger is not None:
            self._stats_logger.start(self._config.observability.log_stats_interval_s)
            stack.callback(self._stats_logger.stop)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(self._run(ready))

    async def _run(self, ready: Ready) -> int:
        self.llm.start(ready)
        try:
            await serve(
                self._app,
                self._listener,
                self.llm,
                self._server,
                responder=self._responder,
                on_ready=self._on_ready,
            )
        except EngineDead as error:
            logger.error("%s", error.message)
            return 1
        finally:
            await self.llm.shutdown(CORE_SHUTDOWN_S)
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


def _template_maker(tokenizer: Tokenizer | None) -> Callable[[str], ChatTemplate]:
    special = {} if tokenizer is None else tokenizer.special_tokens

    def make(source: str) -> ChatTemplate:
        return ChatTemplate(source, special)

    return make
