"""Which executor and worker belong to the name of a backend.

Neighbours: `octavo/launch/core.py`, `octavo/launch/offline.py` (callers). Runs in: EngineCore, or
the user's process offline. Owns: nothing. Knows nothing of: how the core is driven.
"""

from __future__ import annotations

from collections.abc import Callable

from octavo.config.engine import EngineConfig
from octavo.executor.base import Executor
from octavo.executor.uniproc import UniprocExecutor
from octavo.worker.worker import Worker


def make_executor(config: EngineConfig) -> Executor:
    """The executor that the configuration names, not loaded yet."""
    return _BACKEND_TO_EXECUTOR[config.parallel.distributed_executor_backend](config)


def _uniproc(config: EngineConfig) -> Executor:
    return UniprocExecutor(
        Worker(config.model, config.scheduler, config.device, cache_dtype=config.cache.cache_dtype),
        depth=config.scheduler.depth,
    )


#: `--distributed-executor-backend` -> its executor
_BACKEND_TO_EXECUTOR: dict[str, Callable[[EngineConfig], Executor]] = {"uni": _uniproc}
