"""`Application`: AsyncLLM and the routes over it, for a core that is starting.

Neighbours: `octavo/launch/front_end.py` (serves it over HTTP), `octavo/launch/batch.py` (calls it
in this process). Runs in: API process, main thread. Owns: the objects of the front end.
Knows nothing of: flags, sockets, scheduling.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from octavo import __version__
from octavo.api.app import build_app
from octavo.config.engine import EngineConfig
from octavo.config.server import ServerConfig
from octavo.frontend.admission import AdmissionControl
from octavo.frontend.async_llm import AsyncLLM
from octavo.frontend.core_manager import CoreEngineProcManager
from octavo.frontend.input_processor import InputProcessor
from octavo.frontend.output_processor import OutputProcessor
from octavo.frontend.zmq_client import ZmqCoreClient
from octavo.launch.chat_template import chat_template_of
from octavo.launch.grammar_check import make_grammar_checker
from octavo.launch.reply_parsers import make_reply_parsers
from octavo.messages.engine import Ready
from octavo.metrics.engine_metrics import EngineMetrics
from octavo.metrics.http_metrics import HttpMetrics
from octavo.metrics.log_stats import StatsLogger
from octavo.metrics.prometheus import Prometheus
from octavo.metrics.stats import StatsRecorder
from octavo.tokenizer.chat_template import ChatTemplate
from octavo.tokenizer.tokenizer import Tokenizer, load_tokenizer


class Application:
    """Everything of the API process that needs the configuration.

    Args:
        config: the engine's.
        server: the HTTP side's.
        manager: of the core, which is starting.
        on_phase: called with the name of each phase when it has ended.
    """

    def __init__(
        self,
        config: EngineConfig,
        server: ServerConfig,
        manager: CoreEngineProcManager,
        *,
        on_phase: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._config = config
        model = config.model
        tokenizer = None if model.skip_tokenizer_init else load_tokenizer(model.tokenizer_path)
        on_phase("tokenizer")
        admission = AdmissionControl(config.scheduler)
        engine_metrics = EngineMetrics(
            model.max_model_len, config.observability.custom_histogram_buckets
        )
        http_metrics = HttpMetrics()
        self.prometheus = Prometheus(
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
        self.app = build_app(
            self.llm,
            server,
            version=__version__,
            template=chat_template_of(model, tokenizer),
            make_template=_template_maker(tokenizer),
            render_metrics=self.prometheus.render,
            observe_http=http_metrics.observe,
            parsers=make_reply_parsers(server, model, tokenizer),
            observe_tool_reading=http_metrics.observe_tool_reading,
        )
        on_phase("build app")

    def core_is_ready(self, ready: Ready, stack: ExitStack) -> None:
        """Takes what the ready core said; the statistics line runs until the stack is closed."""
        self.prometheus.set_cache_info(self._config.cache, ready)
        if self._stats_logger is not None:
            self._stats_logger.start(self._config.observability.log_stats_interval_s)
            stack.callback(self._stats_logger.stop)


def _template_maker(tokenizer: Tokenizer | None) -> Callable[[str], ChatTemplate]:
    special = {} if tokenizer is None else tokenizer.special_tokens

    def make(source: str) -> ChatTemplate:
        return ChatTemplate(source, special)

    return make
