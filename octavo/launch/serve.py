"""`octavo serve`: the server from bound socket to exit code.

    bind and listen -> answer 503 -> start the core's process -> configuration -> web stack,
    tokenizer, app (the core loads meanwhile) -> handshake -> serve -> drain -> exit code

What is slow to import is imported once the core's process is on its way.

Neighbours: `octavo/cli/serve_run.py` (caller), `octavo/launch/core.py` (the child).
Runs in: API process, main thread. Owns: the order of start-up and of the end.
Knows nothing of: argv, routes, scheduling.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack

import msgspec

from octavo.api.listener import bind, tls_context
from octavo.api.starting import StartingResponder
from octavo.config.args import EngineArgs, ServerArgs
from octavo.config.log_settings import resolve_logging
from octavo.config.resolve_server import resolve_server
from octavo.envs import Env
from octavo.frontend.core_manager import CoreEngineProcManager
from octavo.launch.lazy_package import defer_package_file
from octavo.metrics.startup import StartupTimeline
from octavo.transport.start_signals import StartSignals

logger = logging.getLogger(__name__)

#: what the child runs; by name, since importing it here would bring the whole worker along
CORE_TARGET = "octavo.launch.core:main"


def serve(server_args: ServerArgs, engine_args: EngineArgs, env: Env, signals: StartSignals) -> int:
    """Serves until a signal or the engine's death; returns the exit code.

    Raises:
        StartupError: the server cannot start; nothing is left running.
    """
    timeline = StartupTimeline("APIServer")
    timeline.end("interpreter, flags")
    server = resolve_server(server_args, env)
    for note in server.notes:
        logger.warning("%s", note)
    with ExitStack() as stack:
        listener = bind(server)
        stack.callback(listener.close)
        responder = StartingResponder(listener, tls=tls_context(server))
        responder.start()
        stack.callback(responder.stop)
        timeline.end("bind and listen")

        manager = CoreEngineProcManager(
            CORE_TARGET,
            ready_timeout_s=env.engine_ready_timeout_s,
            options={"log": msgspec.json.encode(resolve_logging(server_args, env)).decode()},
        )
        stack.callback(manager.close)
        signals.on_stop(manager.abandon)
        timeline.end("start EngineCore")

        # the model's and the device's side: from here on while the core's process starts
        from octavo.launch.engine_config import find_engine_config

        config = find_engine_config(engine_args, env, chat_template=server_args.chat_template)
        for note in config.notes:
            logger.info("%s", note)
        manager.configure(config)
        timeline.end("model facts, configuration")
        responder.phase = "loading"

        # uvicorn, tokenizers, the API: once the core has its configuration
        defer_package_file("uvicorn")  # its command line: 18 ms
        from octavo.launch.front_end import FrontEnd

        timeline.end("import web stack")
        front_end = FrontEnd(config, server, manager, responder, listener, signals, timeline)
        return front_end.serve(stack)
