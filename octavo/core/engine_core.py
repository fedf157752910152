"""`EngineCore`: schedule, execute, take the result, again.

Called by: `octavo/core/engine_core_proc.py` (in its own process), `octavo/llm.py` (offline).
Uses: `octavo/core/scheduler.py`, `octavo/core/kv_cache_plan.py`, `octavo/executor/base.py`.
Runs in: EngineCore. Owns: the scheduler, the executor, the steps on their way.
Knows nothing of: sockets, text, tensors.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable

from octavo.config.engine import EngineConfig
from octavo.core.block_hash import make_block_hasher
from octavo.core.kv_cache_manager import KVCacheManager
from octavo.core.kv_cache_plan import KVCachePlan, plan_kv_cache
from octavo.core.kv_events import KVEventPublisher, bound_source, make_kv_events
from octavo.core.phase_timer import PhaseTimer
from octavo.core.scheduler import Scheduler
from octavo.core.step_limit import StepLimit
from octavo.executor.base import Executor, PendingOutput
from octavo.messages.engine import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    Ready,
    StepTimes,
)
from octavo.messages.grammar import Vocabulary
from octavo.messages.profile import Profile
from octavo.messages.step import ModelRunnerOutput
from octavo.structured_output.manager import NoStructuredOutput, StructuredOutputManager

logger = logging.getLogger(__name__)


class EngineCore:
    """One engine: its construction is start-up, `step` is everything after it.

    Args:
        config: resolved and checked.
        executor: not loaded yet; the core ends it.
        structured_output: grammars; none by default.
        kv_events: takes events of the prefix cache; the core closes it. None: nobody listens.
        phases: takes the times of start-up; a new one if None.
        engine_index: number of this engine among data-parallel ones.

    Raises:
        StartupError: the model does not load, or memory does not suffice. The executor is shut
            down.
    """

    def __init__(
        self,
        config: EngineConfig,
        executor: Executor,
        *,
        structured_output: StructuredOutputManager | None = None,
        kv_events: KVEventPublisher | None = None,
        phases: PhaseTimer | None = None,
        engine_index: int = 0,
    ) -> None:
        self._executor = executor
        self._publisher = kv_events
        self._structured_output = structured_output or NoStructuredOutput()
        self._depth = config.scheduler.depth
        assert self._depth in (1, 2), "more steps on their way than the scheduler knows to undo"
        self._engine_index = engine_index
        self._in_flight: deque[PendingOutput] = deque()
        self.times = StepTimes()
        self._step_began_s = 0.0  # the oldest step on its way: when it could begin to compute
        self._log_steps = config.observability.enable_logging_iteration_details
        self._notes: list[str] = []
        timer = phases or PhaseTimer("EngineCore", time.monotonic())
        try:
            plan, full_step_s = self._start_executor(config, timer)
        except BaseException:
            self.shutdown()
            raise
        self._kv_events = make_kv_events(kv_events, config.kv_events, plan.config, engine_index)
        self._max_tokens = config.scheduler.max_num_batched_tokens
        self._step_limit = StepLimit(config.scheduler, full_step_s)
        self._scheduler = Scheduler(
            config.scheduler,
            max_model_len=plan.max_model_len,
            kv=KVCacheManager(
                plan.config,
                max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
                enable_caching=config.cache.enable_prefix_caching,
                hasher=make_block_hasher(
                    config.cache.prefix_caching_hash_algo, config.cache.prefix_hash_seed
                ),
                events=self._kv_events,
            ),
            structured_output=self._structured_output,
        )
        timer.end("scheduler")
        self.ready = Ready(
            engine_index=engine_index,
            max_model_len=plan.max_model_len,
            num_blocks=plan.config.num_blocks,
            block_size=plan.config.block_size,
            kv_cache_size_tokens=plan.size_tokens,
            max_num_batched_tokens=self._step_limit.num_tokens,
            max_num_seqs=config.scheduler.max_num_seqs,
            dtype=config.model.dtype,
            notes=self._notes,
            phases=timer.phases,
            kv_events=bound_source(kv_events, config.kv_events),
        )

    # -- requests -------------------------------------------------------------------------------

    def add_request(self, request: EngineCoreRequest) -> None:
        """Queues a checked request."""
        self._scheduler.add_request(request)

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """Ends requests; ids that are unknown or have ended do no harm."""
        aborted = self._scheduler.abort_requests(request_ids)
        if aborted:
            logger.debug("Aborted requests: %s", ", ".join(aborted))

    def abort_all(self) -> None:
        """Ends every request."""
        self._scheduler.abort_all()

    @property
    def num_unfinished_requests(self) -> int:
        """Waiting and running requests."""
        return self._scheduler.num_unfinished_requests

    @property
    def has_work(self) -> bool:
        """True while `step` has something to compute or to say."""
        scheduler = self._scheduler
        return bool(scheduler.num_unfinished_requests or scheduler.has_news or self._in_flight)

    def step(self) -> EngineCoreOutputs | None:
        """Computes what can be computed and returns what it has to say, None if nothing.

        Steps are started until `depth` of them are on their way; then the oldest is awaited. With
        a depth of 1 that is: schedule, execute, take the result.

        Raises:
            Exception: the step could not run. The engine cannot go on; the cause is in it.
        """
        start_s = time.monotonic()
        scheduler = self._scheduler
        while len(self._in_flight) < self._depth:
            scheduled = scheduler.schedule(self._max_tokens, self._step_limit.chunk)
            if scheduled is None:
                break
            if not self._in_flight:
                self._step_began_s = time.monotonic()
            masks = None
            if scheduled.grammar_request_ids:
                masks = self._structured_output.masks(scheduled.grammar_request_ids)
            self._in_flight.append(self._executor.execute_model(scheduled, masks))
        outputs = []
        if self._in_flight:
            result = self._in_flight.popleft().result()
            outputs = self._take(result)
        elif not scheduler.has_news:
            self._kv_events.flush()
            return None
        outputs += scheduler.take_outputs()  # of requests that ended in another way
        self._kv_events.flush()
        stats = scheduler.stats()
        if self._log_steps:
            logger.info(
                "Step: %d tokens, %d running, %d waiting",
                stats.num_scheduled_tokens,
                stats.num_running_reqs,
                stats.num_waiting_reqs,
            )
        end_s = time.monotonic()
        self.times.step_s += end_s - start_s
        return EngineCoreOutputs(
            engine_index=self._engine_index,
            outputs=outputs,
            scheduler_stats=stats,
            timestamp_s=end_s,
        )

    def _take(self, result: ModelRunnerOutput) -> list[EngineCoreOutput]:
        """The outputs of the oldest step; the next one on its way begins now."""
        now_s = time.monotonic()
        outputs = self._scheduler.update_from_output(result)
        self._structured_output.begin_masks()
        self._step_limit.observe(self._scheduler.last_step_load, now_s - self._step_began_s)
        self._step_began_s = now_s
        self.times.num_steps += 1
        self.times.backend_s += result.backend_s
        return outputs

    def idle(self) -> None:
        """To be called when there is no work: workers may use the time. Returns at once."""
        self._executor.idle()

    # -- rare calls -----------------------------------------------------------------------------

    def reset_prefix_cache(self, *, preempt_running: bool = False) -> bool:
        """Forgets every cached prefix. Refused (False) while requests hold blocks.

        Args:
            preempt_running: take them their blocks; they compute everything again.
        """
        done = self._scheduler.reset_prefix_cache(preempt_running=preempt_running)
        self._kv_events.flush()  # there may be no step for long
        if not done:
            logger.warning("The prefix cache is not reset: requests are running.")
        return done

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        """The tokens, for grammars; comes before the first request with one."""
        self._structured_output.set_vocabulary(vocabulary)

    def start_profile(self) -> None:
        """Clocks every operation of the steps to come, from zero if a profile is being taken."""
        self._executor.start_profile()

    def stop_profile(self) -> Profile:
        """What they took, and the machine's limits, which takes a second to measure.

        Raises:
            EngineError: no profile is being taken.
        """
        return self._executor.stop_profile()

    def check_health(self) -> None:
        """Returns if the workers are alive.

        Raises:
            EngineDead: one is not.
        """
        self._executor.check_health()

    def abort_step(self) -> None:
        """Makes the running step end early; the engine cannot be used any more. Any thread."""
        self._executor.abort()

    def shutdown(self) -> None:
        """Frees workers and devices. Idempotent."""
        self._executor.shutdown()
        self._structured_output.close()
        if self._publisher is not None:
            self._publisher.close()

    # -- start-up -------------------------------------------------------------------------------

    def _start_executor(self, config: EngineConfig, timer: PhaseTimer) -> tuple[KVCachePlan, float]:
        """Returns the memory plan and the seconds of a full step."""
        executor = self._executor
        with timer.phase("load weights"):
            executor.load()
        with timer.phase("plan memory"):
            plan = plan_kv_cache(
                executor.kv_cache_specs(),
                executor.memory_report(),
                config.cache,
                max_model_len=config.model.max_model_len,
                max_model_len_is_given=config.model.max_model_len_is_given,
                max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
            )
        with timer.phase("allocate KV cache"):
            executor.initialize_kv_cache(plan.config)
        with timer.phase("warm up"):
            full_step_s = executor.warm_up()
        self._notes += executor.notes()
        for line in plan.log_lines(config.device.device):
            logger.info("%s", line)
        for note in self._notes:
            logger.info("%s", note)
        for warning in plan.warnings:
            logger.warning("%s", warning)
        self._notes += plan.warnings
        return plan, full_step_s
