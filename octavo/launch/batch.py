"""`octavo run-batch`: the engine and its routes for one file of requests, without an HTTP server.

The same two processes as `octavo serve`: what is answered, refused and logged is the same.

Neighbours: `octavo/cli/run_batch.py` (caller), `octavo/launch/application.py`,
`octavo/api/batch.py` (answers the lines). Runs in: API process, main thread.
Owns: the order of start and end. Knows nothing of: files, flags.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack

import msgspec
import uvloop

from octavo.api.batch import BatchRunner, Counts, Write
from octavo.api.listener import bind
from octavo.api.metrics_page import serve_metrics
from octavo.config.args import EngineArgs, ServerArgs
from octavo.config.resolve_server import resolve_server
from octavo.config.server import ServerConfig
from octavo.envs import Env
from octavo.errors import CommandFailed
from octavo.frontend.async_llm import AsyncLLM
from octavo.frontend.core_manager import CoreEngineProcManager
from octavo.launch.application import Application
from octavo.launch.engine_config import find_engine_config
from octavo.launch.front_end import CORE_SHUTDOWN_S
from octavo.launch.serve import CORE_TARGET
from octavo.log import LogSettings
from octavo.messages.engine import Ready
from octavo.transport.start_signals import SIGNALS, StartSignals

logger = logging.getLogger(__name__)

#: lines in flight for each request the engine runs at a time: its queue must not run dry
_LINES_PER_SEQ = 2


def run_batch(
    server_args: ServerArgs,
    engine_args: EngineArgs,
    env: Env,
    log: LogSettings,
    signals: StartSignals,
    lines: Sequence[bytes],
    write: Write,
    *,
    has_metrics: bool,
    on_done: Callable[[], None],
) -> Counts:
    """Answers the lines.

    Args:
        log: how both processes log.
        signals: end the process until the engine is ready.
        write: takes the lines of output in order.
        has_metrics: show the page `/metrics` on the server's host and port.
        on_done: called after each line.

    Raises:
        StartupError: the engine cannot be started.
        CommandFailed: a signal came, or the engine died; what was answered before is written.
    """
    server = resolve_server(server_args, env)
    # nobody is on the other side of a socket
    server = msgspec.structs.replace(server, api_keys=[], allowed_origins=[], middleware=[])
    with ExitStack() as stack:
        listener = stack.enter_context(bind(_metrics_address(server))) if has_metrics else None
        manager = CoreEngineProcManager(
            CORE_TARGET,
            ready_timeout_s=env.engine_ready_timeout_s,
            options={"log": msgspec.json.encode(log).decode()},
        )
        stack.callback(manager.close)
        signals.on_stop(manager.abandon)
        config = find_engine_config(engine_args, env, chat_template=server_args.chat_template)
        for note in config.notes:
            logger.info("%s", note)
        manager.configure(config)
        application = Application(config, server, manager)
        ready = manager.ready.result()
        application.core_is_ready(ready, stack)
        runner = BatchRunner(
            application.app,
            max_concurrency=_LINES_PER_SEQ * config.scheduler.max_num_seqs,
            on_done=on_done,
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            return loop.run(_run(runner, application, ready, signals, listener, lines, write))


async def _run(
    runner: BatchRunner,
    application: Application,
    ready: Ready,
    signals: StartSignals,
    listener: socket.socket | None,
    lines: Sequence[bytes],
    write: Write,
) -> Counts:
    llm = application.llm
    llm.start(ready)
    stopped: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, _stop, stopped, number)
    signals.release()
    page = None
    if listener is not None:
        page = await serve_metrics(application.prometheus.render, listener)
    try:
        return await _until_the_end(runner.run(lines, write), llm, stopped)
    finally:
        if page is not None:
            page.close()
        await llm.shutdown(CORE_SHUTDOWN_S)


async def _until_the_end(
    batch: Coroutine[None, None, Counts], llm: AsyncLLM, stopped: asyncio.Future[signal.Signals]
) -> Counts:
    """The batch's end, unless a signal or the engine's death comes first."""
    running = asyncio.create_task(batch)
    dead = asyncio.create_task(llm.wait_dead())
    try:
        await asyncio.wait((running, dead, stopped), return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            number = stopped.result()
            raise CommandFailed(f"ended by {number.name}", exit_code=128 + number)
        if dead.done():  # the lines that were in flight say so; the others were not tried
            raise CommandFailed(dead.result())
        return running.result()
    finally:
        dead.cancel()
        running.cancel()
        await asyncio.wait((running, dead))


def _stop(stopped: asyncio.Future[signal.Signals], number: signal.Signals) -> None:
    if not stopped.done():
        stopped.set_result(number)


def _metrics_address(server: ServerConfig) -> ServerConfig:
    return ServerConfig(host=server.host, port=server.port)
