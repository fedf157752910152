"""The phases of start-up in all processes: one table in the log, and a Chrome trace.

The first process's phases follow one another without gaps from its exec to readiness, so they add
up to the wall time; what other processes did meanwhile stands below, on the same clock.

Neighbours: `octavo/launch/serve.py` (ends phases), `octavo/core/phase_timer.py` (measures the
core's). Runs in: API process. Owns: the phases. Knows nothing of: what happens in a phase.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable

from octavo.messages.engine import PhaseTiming
from octavo.metrics.process_start import process_start_s

logger = logging.getLogger(__name__)


class StartupTimeline:
    """Collects the phases.

    Args:
        process: name of this process in the table.
        start_s: `time.monotonic()` at which it all began; None: when this process was made.
        clock: seconds of `time.monotonic()`.
    """

    def __init__(
        self,
        process: str,
        *,
        start_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._process = process
        self._clock = clock
        self._start_s = process_start_s() if start_s is None else start_s
        self._last_s = self._start_s
        self.phases: list[PhaseTiming] = []

    def end(self, name: str) -> None:
        """The phase that began when the last one ended is over now."""
        now = self._clock()
        self.phases.append(PhaseTiming(self._process, name, self._last_s, now))
        self._last_s = now

    def add(self, phases: Iterable[PhaseTiming]) -> None:
        """Takes the phases of another process."""
        self.phases += phases

    def coverage(self, end_s: float) -> float:
        """Share of the time from the start to `end_s` in which at least one phase ran."""
        covered_s, reached_s = 0.0, self._start_s
        for phase in sorted(self.phases, key=lambda phase: phase.start_s):
            start_s, stop_s = max(phase.start_s, reached_s), min(phase.end_s, end_s)
            if stop_s > start_s:
                covered_s += stop_s - start_s
                reached_s = stop_s
        wall_s = end_s - self._start_s
        return covered_s / wall_s if wall_s > 0 else 1.0

    def table(self, end_s: float) -> list[str]:
        """One line for each phase, and a first one with the sum: seconds from the start, and the
        length of the phase."""
        wall_s = end_s - self._start_s
        rows = [
            (
                phase.process,
                phase.name,
                f"{phase.start_s - self._start_s:.3f}",
                f"{phase.end_s - self._start_s:.3f}",
                f"{phase.end_s - phase.start_s:.3f} s",
            )
            for phase in self._ordered()
        ]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(5)]
        title = (
            f"Start-up took {wall_s:.3f} s from exec to ready; the phases cover "
            f"{self.coverage(end_s):.1%} of it:"
        )
        return [title, *("  " + _line(row, widths) for row in rows)]

    def finish(self, trace_file: str | None, *, pid: int) -> None:
        """The server is ready: logs the table and writes the trace.

        Args:
            trace_file: of `--startup-trace`; a file that cannot be written is a warning.
            pid: of this process; others are numbered after it in the trace.
        """
        end_s = self._clock()
        logger.info("%s", "\n".join(self.table(end_s)))
        if trace_file is None:
            return
        try:
            with open(trace_file, "w", encoding="utf-8") as file:
                json.dump(self.trace(pid), file)
        except OSError as error:
            logger.warning("The start-up trace %s was not written: %s.", trace_file, error.strerror)

    def trace(self, pid: int) -> dict[str, object]:
        """The phases as Chrome's trace format has them (chrome://tracing, Perfetto): complete
        events, microseconds from the start, one process per row."""
        processes = dict.fromkeys([self._process, *(phase.process for phase in self.phases)])
        process_to_pid = {process: pid + number for number, process in enumerate(processes)}
        names: list[dict[str, object]] = [
            {"name": "process_name", "ph": "M", "pid": number, "tid": 0, "args": {"name": process}}
            for process, number in process_to_pid.items()
        ]
        events: list[dict[str, object]] = [
            {
                "name": phase.name,
                "cat": "startup",
                "ph": "X",
                "ts": round((phase.start_s - self._start_s) * 1e6),
                "dur": round((phase.end_s - phase.start_s) * 1e6),
                "pid": process_to_pid[phase.process],
                "tid": 0,
            }
            for phase in self._ordered()
        ]
        return {"traceEvents": [*names, *events], "displayTimeUnit": "ms"}

    def _ordered(self) -> list[PhaseTiming]:
        """This process first, each in order of time."""
        return sorted(
            self.phases,
            key=lambda phase: (phase.process != self._process, phase.process, phase.start_s),
        )


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    process, name, start, stop, length = row
    return (
        f"{process:<{widths[0]}}  {name:<{widths[1]}}  {start:>{widths[2]}} - "
        f"{stop:>{widths[3]}}  {length:>{widths[4]}}"
    )
