"""`--custom-histogram-buckets` and the interval of the statistics line.

Runs in: the API process, `LLM`. Knows nothing of: Prometheus.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

from octavo.errors import ConfigError

FLAG = "--custom-histogram-buckets"
DEFAULT_INTERVAL_S = 10.0


def check_buckets(given: Mapping[str, object] | None) -> dict[str, list[float]]:
    """Metric family -> ascending upper bounds.

    Raises:
        ConfigError: not a list of ascending numbers.
    """
    buckets: dict[str, list[float]] = {}
    for family, bounds in (given or {}).items():
        if not isinstance(bounds, list) or not bounds or not all(map(_is_number, bounds)):
            raise ConfigError(f"{FLAG}: {family} must be a list of numbers, got {bounds!r}")
        if any(high <= low for low, high in pairwise(bounds)):
            raise ConfigError(f"{FLAG}: the bounds of {family} must rise, got {bounds!r}")
        buckets[family] = [float(bound) for bound in bounds]
    return buckets


def choose_stats_interval(interval_s: float) -> float:
    """Seconds between statistics lines; 0 means the default, as in vLLM."""
    return interval_s if interval_s > 0 else DEFAULT_INTERVAL_S


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
