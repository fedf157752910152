"""Histogram buckets and the statistics interval."""

from __future__ import annotations

import pytest

from octavo.config.rules.metrics import check_buckets, choose_stats_interval
from octavo.errors import ConfigError


def test_rising_numbers_are_buckets() -> None:
    assert check_buckets({"vllm:x": [1, 2.5]}) == {"vllm:x": [1.0, 2.5]}
    assert check_buckets(None) == {}


@pytest.mark.parametrize("bounds", [[], [1, 1], [2, 1], ["1"], [True], [float("nan")], 3, None])
def test_other_buckets_are_refused(bounds: object) -> None:
    with pytest.raises(ConfigError, match="--custom-histogram-buckets: "):
        check_buckets({"vllm:x": bounds})


def test_an_interval_of_zero_is_the_default() -> None:
    assert choose_stats_interval(0.0) == 10.0
    assert choose_stats_interval(2.5) == 2.5
