"""A histogram that costs a bisection and an addition per observation.

Runs in: API process. Owns: counts per bucket. Knows nothing of: Prometheus, labels.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence


class Histogram:
    """Counts of values by upper bound (inclusive), as Prometheus defines them.

    Args:
        bounds: ascending upper bounds, without +Inf.
    """

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        assert list(bounds) == sorted(set(bounds)), "bounds must ascend"
        self.bounds = tuple(float(bound) for bound in bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Counts one value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_all(self, values: Iterable[float]) -> None:
        """Counts each value."""
        counts, bounds = self._counts, self.bounds
        total = 0.0
        for value in values:
            counts[bisect_left(bounds, value)] += 1
            total += value
        self.sum += total

    def cumulative(self) -> list[int]:
        """Number of values at or below each bound, then of all."""
        totals, total = [], 0
        for count in self._counts:
            total += count
            totals.append(total)
        return totals
