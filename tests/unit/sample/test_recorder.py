"""The whole order of sampling on the native library, against a plain reference."""

from __future__ import annotations

import pytest

from octavo.ops.library import available_isas
from octavo.ops.native import NativeBackend
from tests.fakes.sampling_bench import (
    MODES,
    SHAPES,
    check_frequencies,
    check_seeds,
    check_the_whole_order,
)
from tests.fakes.worker_rig import native_backend

each_isa = pytest.mark.parametrize("isa", available_isas())


def backend(isa: str) -> NativeBackend:
    return native_backend("float32", isa=isa, num_threads=2)


@each_isa
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(6))
def test_tokens_and_reports_are_those_of_the_reference(isa: str, mode: str, seed: int) -> None:
    check_the_whole_order(lambda: backend(isa), seed, mode)


@each_isa
@pytest.mark.parametrize("shape", SHAPES)
def test_draws_follow_the_distribution(isa: str, shape: str) -> None:
    check_frequencies(lambda: backend(isa), SHAPES[shape])


@each_isa
def test_a_seed_and_a_count_make_the_token(isa: str) -> None:
    check_seeds(lambda: backend(isa))
