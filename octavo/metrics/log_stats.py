"""The statistics line of the log, word for word as vLLM users grep it.

    Engine 000: Avg prompt throughput: 12.3 tokens/s, Avg generation throughput: ...

While the engine is idle nothing is logged (DEBUG: always). The first idle interval after work is
logged once, so that the last line shows zeros.

Runs in: API process; recording on the event loop's thread, logging on its own.
Owns: the thread. Knows nothing of: Prometheus, requests.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from octavo.messages.engine import SchedulerStats
from octavo.metrics.stats import IterationStats
from octavo.transport.process_name import name_thread

logger = logging.getLogger(__name__)


class StatsLogger:
    """A `StatsRecorder` that logs averages over an interval.

    Args:
        device: "cpu" or "cuda": names the KV cache in the line.
        engine_index: number of the engine.
        clock: seconds of `time.monotonic()`.
    """

    def __init__(
        self,
        *,
        device: str = "cpu",
        engine_index: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cache_name = "CPU" if device == "cpu" else "GPU"
        self._engine_index = engine_index
        self._clock = clock
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        # totals, written by `record` only; `log` works with differences, so no lock is needed
        self._num_prompt_tokens = 0
        self._num_generation_tokens = 0
        self._num_preemptions = 0
        self._prefix_cache = (0, 0)  # tokens looked up, tokens found
        self._scheduler = SchedulerStats()
        # as of the last line
        self._last_s = clock()
        self._last_tokens = (0, 0)
        self._last_prefix_cache = (0, 0)
        self._hit_rate = 0.0
        self._was_active = False

    def record(self, scheduler: SchedulerStats | None, iteration: IterationStats) -> None:
        """Adds one step."""
        self._num_prompt_tokens += iteration.num_prompt_tokens
        self._num_generation_tokens += iteration.num_generation_tokens
        if scheduler is not None:
            self._scheduler = scheduler
            self._num_preemptions += scheduler.num_preemptions
            cache = scheduler.prefix_cache
            if cache.queries:
                queries, hits = self._prefix_cache
                self._prefix_cache = (queries + cache.queries, hits + cache.hits)

    def start(self, interval_s: float) -> None:
        """Begins to log every `interval_s` seconds, on a thread of its own."""
        assert self._thread is None, "started already"
        self._last_s = self._clock()
        self._thread = threading.Thread(
            target=self._run, args=(interval_s,), name="octavo-stats", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread. Idempotent."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def log(self) -> None:
        """Writes the line for the time since the last one, if there is something to say."""
        now, tokens = self._clock(), (self._num_prompt_tokens, self._num_generation_tokens)
        interval_s = max(now - self._last_s, 1e-9)
        prompt_rate, generation_rate = (
            (total - last) / interval_s
            for total, last in zip(tokens, self._last_tokens, strict=True)
        )
        self._last_s, self._last_tokens = now, tokens
        prefix_cache = self._prefix_cache
        queries = prefix_cache[0] - self._last_prefix_cache[0]
        if queries:  # else the last rate stays
            self._hit_rate = (prefix_cache[1] - self._last_prefix_cache[1]) / queries
            self._last_prefix_cache = prefix_cache

        scheduler = self._scheduler
        is_active = bool(
            prompt_rate
            or generation_rate
            or scheduler.num_running_reqs
            or scheduler.num_waiting_reqs
        )
        level = logging.INFO if is_active or self._was_active else logging.DEBUG
        self._was_active = is_active
        preemptions = f"Preemptions: {self._num_preemptions}, " if self._num_preemptions else ""
        logger.log(
            level,
            "Engine %03d: Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f "
            "tokens/s, Running: %d reqs, Waiting: %d reqs, %s%s KV cache usage: %.1f%%, "
            "Prefix cache hit rate: %.1f%%",
            self._engine_index,
            prompt_rate,
            generation_rate,
            scheduler.num_running_reqs,
            scheduler.num_waiting_reqs,
            preemptions,
            self._cache_name,
            scheduler.kv_cache_usage * 100,
            self._hit_rate * 100,
        )

    def _run(self, interval_s: float) -> None:
        name_thread("octavo-stats")
        while not self._stop.wait(interval_s):
            self.log()
