"""Seeds of requests."""

from __future__ import annotations

from octavo.sample.seed import request_seed


def test_a_given_seed_is_used_whatever_the_request() -> None:
    assert request_seed(42, 0, "a") == request_seed(42, 7, "b") == 42


def test_negative_seeds_are_64_bit_numbers() -> None:
    assert request_seed(-2, 0, "a") == 2**64 - 2


def test_requests_without_a_seed_differ_by_id_and_by_engine_seed() -> None:
    seeds = {request_seed(None, engine, name) for engine in (0, 1) for name in ("a", "b")}
    assert len(seeds) == 4
    assert request_seed(None, 0, "a") in seeds
