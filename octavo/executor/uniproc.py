"""`UniprocExecutor`: the worker lives in this process; a step is a function call.

Runs in: EngineCore. Owns: the worker. Knows nothing of: models, kernels.
"""

from __future__ import annotations

from concurrent.futures import Future

from octavo.errors import EngineDead
from octavo.executor.base import Executor
from octavo.messages.kv_cache import KVCacheConfig, KVCacheSpec, MemoryReport
from octavo.messages.step import ModelRunnerOutput, SchedulerOutput
from octavo.worker.worker import Worker


class UniprocExecutor(Executor):
    """One worker, called directly.

    Args:
        worker: not loaded yet.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._is_shut_down = False

    def load(self) -> None:
        self._worker.load_model()

    def memory_report(self) -> MemoryReport:
        return self._worker.memory_report()

    def kv_cache_specs(self) -> list[KVCacheSpec]:
        return self._worker.kv_cache_specs()

    def initialize_kv_cache(self, config: KVCacheConfig) -> None:
        self._worker.initialize_kv_cache(config)

    def warm_up(self) -> float:
        return self._worker.warm_up()

    def execute_model(self, scheduled: SchedulerOutput) -> Future[ModelRunnerOutput]:
        result: Future[ModelRunnerOutput] = Future()
        try:
            result.set_result(self._worker.execute_model(scheduled))
        except Exception as error:
            result.set_exception(error)
        return result

    def notes(self) -> list[str]:
        return self._worker.notes()

    def abort(self) -> None:
        self._worker.abort()

    def check_health(self) -> None:
        if self._is_shut_down:
            raise EngineDead("the executor has been shut down")

    def shutdown(self) -> None:
        if not self._is_shut_down:
            self._is_shut_down = True
            self._worker.shutdown()
