"""When each request of a benchmark is sent.

Gaps are drawn from a gamma distribution with the mean 1 / rate (exponential for burstiness 1) and
stretched so that the last request leaves at count / rate, as in vLLM; the same seed gives its
times.

Runs in: the shell's process. Knows nothing of: requests.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np


class RampUp(NamedTuple):
    """A request rate that rises from `start` to `end` requests per second."""

    strategy: str  # linear, exponential
    start: int
    end: int

    def rate(self, index: int, count: int) -> float:
        """Requests per second when request `index` of `count` is sent."""
        progress = index / max(count - 1, 1)
        if self.strategy == "linear":
            return self.start + (self.end - self.start) * progress
        return float(self.start * (self.end / self.start) ** progress)


class Arrival(NamedTuple):
    """Seconds after the start, and the rate at that moment."""

    delay_s: float
    rate: float


def arrivals(
    count: int, rate: float, burstiness: float, *, ramp_up: RampUp | None, seed: int
) -> list[Arrival]:
    """The time of each request, in order.

    Args:
        count: requests.
        rate: per second; infinite: all at once.
        burstiness: shape of the gaps; infinite: all equal.
        ramp_up: instead of `rate`.
        seed: of the gaps.
    """
    # the older generator: it draws what vLLM draws
    draw = np.random.RandomState(seed)
    rates = [rate if ramp_up is None else ramp_up.rate(index, count) for index in range(count)]
    gaps = [_gap(each, burstiness, draw) for each in rates]
    times = np.cumsum(gaps)
    if ramp_up is None and count and times[-1] > 0:
        times *= count / rate / times[-1]
    return [Arrival(float(time), each) for time, each in zip(times, rates, strict=True)]


def _gap(rate: float, burstiness: float, draw: np.random.RandomState) -> float:
    if math.isinf(rate):
        return 0.0
    if math.isinf(burstiness):
        return 1.0 / rate
    return float(draw.gamma(shape=burstiness, scale=1.0 / (rate * burstiness)))
