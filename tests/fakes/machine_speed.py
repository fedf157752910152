"""How slow Python is at this moment, for tests with a budget of CPU time.

CPU time does not count what others do on the same core, but a core whose other hyperthread is in
use takes up to twice as much of it. More than that is not the machine.

Knows nothing of: what is measured.
"""

from __future__ import annotations

import time

#: CPU seconds of `_work` where the budgets were set, with nothing else running
_REFERENCE_S = 0.006


def slowdown() -> float:
    """CPU time now, of what it is where budgets were set; from 1 to 2."""
    begin_s = time.thread_time()
    for _ in range(3):
        _work()
    return min(max(1.0, (time.thread_time() - begin_s) / (3 * _REFERENCE_S)), 2.0)


def _work() -> None:
    words: dict[str, int] = {}
    for number in range(20_000):
        key = f"{number % 97}:{number & 15}"
        words[key] = words.get(key, 0) + len(key)
