"""The EngineCore process: joins the core with an executor and a worker.

Neighbours: `octavo/launch/serve.py` (starts it), `octavo/core/engine_core_proc.py`.
Runs in: EngineCore. Owns: nothing. Knows nothing of: HTTP, text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec

from octavo.config.engine import EngineConfig
from octavo.core.engine_core_proc import run_engine_core
from octavo.executor.base import Executor
from octavo.executor.uniproc import UniprocExecutor
from octavo.log import LogSettings, configure_logging
from octavo.transport.child import child_args
from octavo.worker.worker import Worker


def make_executor(config: EngineConfig) -> Executor:
    """The executor that the configuration names, not loaded yet."""
    return _BACKEND_TO_EXECUTOR[config.parallel.distributed_executor_backend](config)


def _uniproc(config: EngineConfig) -> Executor:
    return UniprocExecutor(Worker(config.model, config.scheduler, config.device))


#: `--distributed-executor-backend` -> its executor
_BACKEND_TO_EXECUTOR: dict[str, Callable[[EngineConfig], Executor]] = {"uni": _uniproc}


def main() -> None:
    """The child's whole life; does not return."""
    args = child_args()
    settings = msgspec.json.decode(args.options["log"], type=LogSettings)

    def configure(config: EngineConfig) -> None:
        configure_logging(settings, process_name="EngineCore")

    sys.exit(run_engine_core(args, make_executor, configure=configure))
