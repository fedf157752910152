"""`Executor`: how the engine core reaches the device(s), whatever processes are in between.

Order of calls: `load`, `memory_report`, `kv_cache_specs`, `initialize_kv_cache`, `warm_up`, then
`execute_model` once per step, at last `shutdown`.

Runs in: EngineCore. Implemented by: `uniproc.py`. Used by: `octavo/core/engine_core.py`.
Knows nothing of: requests' text, queues, sockets of the front end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from octavo.messages.kv_cache import KVCacheConfig, KVCacheSpec, MemoryReport
from octavo.messages.profile import Profile
from octavo.messages.step import ModelRunnerOutput, PendingMasks, SchedulerOutput


class PendingOutput(Protocol):
    """The result of a step that may still be computing; a `Future` is one."""

    def result(self) -> ModelRunnerOutput:
        """Waits for it, and raises what the step raised."""
        ...


class Executor(ABC):
    """Workers behind one object."""

    @abstractmethod
    def load(self) -> None:
        """Prepares the devices and loads the weights.

        Raises:
            StartupError: the model cannot be loaded; the sentence says why.
        """

    @abstractmethod
    def memory_report(self) -> MemoryReport:
        """Memory after the weights are loaded."""

    @abstractmethod
    def kv_cache_specs(self) -> list[KVCacheSpec]:
        """The cache that each attention layer needs."""

    @abstractmethod
    def initialize_kv_cache(self, config: KVCacheConfig) -> None:
        """Allocates the cache and makes the workers able to run steps.

        Raises:
            StartupError: the memory cannot be had.
        """

    @abstractmethod
    def warm_up(self) -> float:
        """Runs real steps; returns the seconds that a step of the most tokens takes."""

    @abstractmethod
    def execute_model(
        self, scheduled: SchedulerOutput, grammar_masks: PendingMasks | None = None
    ) -> PendingOutput:
        """Takes one step; steps run one after the other, in this order. With a depth of more than
        one it returns before the step is done. The future holds the workers' exception when the
        step could not run.

        Args:
            grammar_masks: of `scheduled.grammar_request_ids`, in their order; awaited only before
                the step samples.
        """

    @abstractmethod
    def idle(self) -> None:
        """No step is on its way, and none is known to come: workers may get ready for later ones.
        Returns at once; may be called any number of times."""

    @abstractmethod
    def start_profile(self) -> None:
        """Clocks every operation of the steps to come, from zero if a profile is being taken.

        Raises:
            EngineError: the device has no clocks.
        """

    @abstractmethod
    def stop_profile(self) -> Profile:
        """What they took.

        Raises:
            EngineError: no profile is being taken.
        """

    @abstractmethod
    def notes(self) -> list[str]:
        """Sentences for the log: what was decided about the model on these devices."""

    @abstractmethod
    def abort(self) -> None:
        """Makes the running step, and every later one, end early. Any thread."""

    @abstractmethod
    def check_health(self) -> None:
        """Returns if every worker is alive.

        Raises:
            EngineDead: one is not.
        """

    @abstractmethod
    def shutdown(self) -> None:
        """Frees devices and workers. May be called more than once."""
