"""`UniprocExecutor`: the worker lives in this process; a step is a function call.

With a depth of more than one, steps compute on a thread of their own, and the caller's thread
prepares the next one meanwhile (native code does not hold the interpreter).

Runs in: EngineCore. Owns: the worker. Knows nothing of: models, kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.errors import EngineDead
from octavo.executor.base import Executor, PendingOutput
from octavo.messages.kv_cache import KVCacheConfig, KVCacheSpec, MemoryReport
from octavo.messages.profile import Profile
from octavo.messages.step import ModelRunnerOutput, PendingMasks, SchedulerOutput
from octavo.transport.process_name import name_thread
from octavo.worker.worker import Worker

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


class UniprocExecutor(Executor):
    """One worker, called directly.

    Args:
        worker: not loaded yet.
        depth: steps that may be on their way at the same time.
    """

    def __init__(self, worker: Worker, *, depth: int = 1) -> None:
        self._worker = worker
        self._thread = _step_thread() if depth > 1 else None
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

    def execute_model(
        self, scheduled: SchedulerOutput, grammar_masks: PendingMasks | None = None
    ) -> PendingOutput:
        try:
            step = self._worker.prepare(scheduled)
            if self._thread is not None:
                return self._thread.submit(self._worker.run, step, grammar_masks)
            return _Done(self._worker.run(step, grammar_masks))
        except Exception as error:
            return _Failed(error)

    def idle(self) -> None:
        self._worker.idle()

    def start_profile(self) -> None:
        if self._thread is None:
            self._worker.start_profile()
        else:  # between two steps
            self._thread.submit(self._worker.start_profile).result()

    def stop_profile(self) -> Profile:
        if self._thread is None:
            return self._worker.stop_profile()
        return self._thread.submit(self._worker.stop_profile).result()

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
            if self._thread is not None:
                self._worker.abort()  # nobody waits for the steps on their way
                self._thread.shutdown(wait=True)
            self._worker.shutdown()


class _Done:
    """A step that has been computed. A `Future`, which threads may wait for, costs as much as
    scheduling."""

    __slots__ = ("_output",)

    def __init__(self, output: ModelRunnerOutput) -> None:
        self._output = output

    def result(self) -> ModelRunnerOutput:
        return self._output


class _Failed:
    """A step that could not run."""

    __slots__ = ("_error",)

    def __init__(self, error: Exception) -> None:
        self._error = error

    def result(self) -> ModelRunnerOutput:
        raise self._error


def _step_thread() -> ThreadPoolExecutor:
    # rare: by default steps run on the caller's thread
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, initializer=name_thread, initargs=("octavo-steps",))
