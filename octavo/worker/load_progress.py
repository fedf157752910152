"""A progress bar while weights are packed: on terminals only, and only when it takes a while.

Runs in: workers. Knows nothing of: formats, backends, model classes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from octavo.models.base import Weights
from octavo.ops.interface import Weight

#: seconds of loading before the bar appears
DELAY_S = 2.0


@contextmanager
def load_progress(
    weights: Weights,
    num_tensors: int,
    *,
    stream: TextIO | None = None,
    delay_s: float = DELAY_S,
) -> Iterator[Weights]:
    """`weights` that move a bar of `num_tensors` steps; as they are when no one watches.

    Args:
        stream: where the bar goes; None: standard error.
    """
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield weights
        return
    # only terminals pay for the import
    from tqdm import tqdm

    with tqdm(
        total=num_tensors, desc="Loading weights", unit="tensor", file=stream, delay=delay_s
    ) as bar:
        yield _CountedWeights(weights, lambda: bar.update(1))


class _CountedWeights:
    """Calls `count` the first time a name is asked for."""

    def __init__(self, weights: Weights, count: Callable[[], object]) -> None:
        self._weights = weights
        self._count = count
        self._asked: set[str] = set()

    def linear(self, name: str, n: int, k: int) -> Weight:
        return self._counted(name, self._weights.linear(name, n, k))

    def vector(self, name: str, n: int) -> Weight:
        return self._counted(name, self._weights.vector(name, n))

    def optional_vector(self, name: str, n: int) -> Weight | None:
        return self.vector(name, n) if self.has(name) else None

    def has(self, name: str) -> bool:
        return self._weights.has(name)

    def _counted(self, name: str, weight: Weight) -> Weight:
        if name not in self._asked:
            self._asked.add(name)
            self._count()
        return weight
