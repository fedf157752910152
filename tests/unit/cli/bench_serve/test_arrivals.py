"""When requests are sent."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.cli.bench_serve.arrivals import RampUp, arrivals


def delays(count: int, rate: float, burstiness: float = 1.0, seed: int = 0) -> list[float]:
    return [a.delay_s for a in arrivals(count, rate, burstiness, ramp_up=None, seed=seed)]


def test_an_infinite_rate_sends_all_at_once() -> None:
    assert delays(3, math.inf) == [0.0, 0.0, 0.0]


def test_infinite_burstiness_makes_equal_gaps() -> None:
    assert delays(4, 2.0, math.inf) == pytest.approx([0.5, 1.0, 1.5, 2.0])


@given(st.integers(1, 50), st.floats(0.1, 100), st.floats(0.05, 20), st.integers(0, 2**32 - 1))
def test_the_last_request_leaves_at_count_over_rate(
    count: int, rate: float, burstiness: float, seed: int
) -> None:
    times = delays(count, rate, burstiness, seed)
    assert times == sorted(times)
    assert times[-1] == pytest.approx(count / rate)


def test_the_gaps_are_those_of_numpys_global_generator() -> None:
    np.random.seed(7)
    gaps = [np.random.gamma(shape=0.5, scale=1 / (3.0 * 0.5)) for _ in range(5)]
    expected = np.cumsum(gaps) * (5 / 3.0) / sum(gaps)
    assert delays(5, 3.0, 0.5, seed=7) == pytest.approx(expected.tolist())


def test_burstiness_is_the_spread_of_the_gaps() -> None:
    def deviation(burstiness: float) -> float:
        gaps = np.diff([0.0, *delays(5000, 10.0, burstiness)])
        return float(gaps.std() / gaps.mean())

    assert deviation(1.0) == pytest.approx(1.0, abs=0.1)
    assert deviation(0.25) == pytest.approx(2.0, abs=0.3)
    assert deviation(16.0) == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize(("strategy", "middle"), [("linear", 50.5), ("exponential", 10.0)])
def test_a_ramp_goes_from_start_to_end(strategy: str, middle: float) -> None:
    rates = [a.rate for a in arrivals(3, math.inf, 1.0, ramp_up=RampUp(strategy, 1, 100), seed=0)]
    assert rates == pytest.approx([1.0, middle, 100.0])
