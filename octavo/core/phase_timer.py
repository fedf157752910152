"""Measures the phases of start-up in this process, for the one table over all processes.

The rows are joined and printed by the API process (`octavo/metrics/startup.py`).
Runs in: EngineCore. Owns: the phases measured so far.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from octavo.messages.engine import PhaseTiming


class PhaseTimer:
    """Phases that follow one another without gaps are measured by one clock reading each.

    Args:
        process: name of this process in the table.
        start_s: `time.monotonic()` at which the first phase begins.
    """

    def __init__(self, process: str, start_s: float) -> None:
        self._process = process
        self._last_s = start_s
        self.phases: list[PhaseTiming] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measures the body, from the end of the phase before it."""
        try:
            yield
        finally:
            self.end(name)

    def end(self, name: str) -> None:
        """The phase that began when the last one ended is over now."""
        now = time.monotonic()
        self.phases.append(PhaseTiming(self._process, name, self._last_s, now))
        self._last_s = now
