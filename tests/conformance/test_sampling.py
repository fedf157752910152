"""The whole order of sampling on the torch backend: the properties of
`tests/unit/sample/test_recorder.py`."""

from __future__ import annotations

import pytest

from octavo.ops.torch import TorchBackend
from tests.fakes.sampling_bench import (
    MODES,
    SHAPES,
    check_frequencies,
    check_seeds,
    check_the_whole_order,
)


def backend() -> TorchBackend:
    return TorchBackend("cpu", "float32")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_tokens_and_reports_are_those_of_the_reference(mode: str, seed: int) -> None:
    check_the_whole_order(backend, seed, mode)


@pytest.mark.parametrize("shape", SHAPES)
def test_draws_follow_the_distribution(shape: str) -> None:
    check_frequencies(backend, SHAPES[shape])


def test_a_seed_and_a_count_make_the_token() -> None:
    check_seeds(backend)
