from __future__ import annotations

import logging
import threading

import pytest

from octavo.messages.engine import PrefixCacheStats, SchedulerStats
from octavo.metrics.log_stats import StatsLogger
from octavo.metrics.stats import IterationStats


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "octavo.metrics.log_stats")
    return caplog


def test_the_line_is_vllms(clock: Clock, lines: pytest.LogCaptureFixture) -> None:
    stats = StatsLogger(clock=clock)
    scheduler = SchedulerStats(3, 1, 0.125, PrefixCacheStats(200, 50))
    stats.record(scheduler, IterationStats(num_prompt_tokens=123, num_generation_tokens=7))
    clock.now_s += 10
    stats.log()
    assert lines.messages == [
        (
            "Engine 000: Avg prompt throughput: 12.3 tokens/s, Avg generation throughput: 0.7 "
            "tokens/s, Running: 3 reqs, Waiting: 1 reqs, CPU KV cache usage: 12.5%, "
            "Prefix cache hit rate: 25.0%"
        )
    ]


def test_preemptions_and_the_device_are_named(
    clock: Clock, lines: pytest.LogCaptureFixture
) -> None:
    stats = StatsLogger(device="cuda", engine_index=2, clock=clock)
    stats.record(SchedulerStats(1, num_preemptions=4), IterationStats())
    stats.log()
    (line,) = lines.messages
    assert line.startswith("Engine 002: ")
    assert "Waiting: 0 reqs, Preemptions: 4, GPU KV cache usage" in line


def test_an_idle_engine_says_its_zeros_once(clock: Clock, lines: pytest.LogCaptureFixture) -> None:
    stats = StatsLogger(clock=clock)
    stats.log()
    assert lines.messages == []
    stats.record(SchedulerStats(), IterationStats(num_generation_tokens=5))
    for _ in range(4):
        clock.now_s += 10
        stats.log()
    assert [m.split(", ")[1] for m in lines.messages] == [
        "Avg generation throughput: 0.5 tokens/s",
        "Avg generation throughput: 0.0 tokens/s",
    ]


def test_the_hit_rate_is_that_of_the_last_interval_with_queries(
    clock: Clock, lines: pytest.LogCaptureFixture
) -> None:
    stats = StatsLogger(clock=clock)
    for hits in (100, 0, None):
        cache = PrefixCacheStats() if hits is None else PrefixCacheStats(100, hits)
        stats.record(SchedulerStats(1, prefix_cache=cache), IterationStats())
        clock.now_s += 10
        stats.log()
    rates = [m.rpartition(": ")[2] for m in lines.messages]
    assert rates == ["100.0%", "0.0%", "0.0%"]


def test_the_thread_logs_by_itself_and_ends(lines: pytest.LogCaptureFixture) -> None:
    logged = threading.Event()

    class Seen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.set()

    handler = Seen()
    logger = logging.getLogger("octavo.metrics.log_stats")
    logger.addHandler(handler)
    stats = StatsLogger()
    try:
        stats.record(SchedulerStats(1), IterationStats(num_generation_tokens=1))
        stats.start(0.001)
        assert logged.wait(10)
    finally:
        stats.stop()
        stats.stop()
        logger.removeHandler(handler)
    assert "octavo-stats" not in {t.name for t in threading.enumerate()}
