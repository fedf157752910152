from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo.metrics.histogram import Histogram

BOUNDS = [0.5, 1.0, 2.5]


@given(st.lists(st.floats(0, 5)))
def test_buckets_count_what_is_at_or_below_their_bound(values: list[float]) -> None:
    histogram = Histogram(BOUNDS)
    histogram.observe_all(values)
    counted = [sum(v <= bound for v in values) for bound in BOUNDS]
    assert histogram.cumulative() == [*counted, len(values)]
    assert abs(histogram.sum - sum(values)) < 1e-9


def test_observing_one_by_one_is_observing_all() -> None:
    one_by_one, together = Histogram(BOUNDS), Histogram(BOUNDS)
    for value in (0.5, 0.50001, 9.0):
        one_by_one.observe(value)
    together.observe_all([0.5, 0.50001, 9.0])
    assert one_by_one.cumulative() == together.cumulative() == [1, 2, 2, 3]
