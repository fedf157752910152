"""The fidelity benchmark: its scores where they are known, and what its report keeps."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fidelity.measure import NUM_CANDIDATES, Candidates, Measurement
from benchmarks.fidelity.report import Part, Row, merge_json, write_markdown
from benchmarks.fidelity.scores import Scores, compare

P = 6  # places


def candidates(num_places: int, shift: float = 0.0) -> Candidates:
    """Tokens 0, 1, 2, ... with probabilities 1/2, 1/4, ...; `shift` is added to the log of all."""
    ids = np.tile(np.arange(NUM_CANDIDATES), (num_places, 1))
    logprobs = -np.log(2.0) * (1 + ids) + shift
    return Candidates(ids, logprobs)


def measurement(token_logprob: float = -1.0, places: Candidates | None = None) -> Measurement:
    greedy = [([0, 0, 0], candidates(3)), ([0, 0, 0], candidates(3))]
    return Measurement(np.full(P, token_logprob), places or candidates(P), greedy, 1.0)


def swapped(places: Candidates, place: int, first: int, second: int) -> Candidates:
    """Two tokens of one place change their ranks."""
    ids = places.ids.copy()
    ids[place, [first, second]] = ids[place, [second, first]]
    return Candidates(ids, places.logprobs)


def test_a_measurement_equals_itself() -> None:
    scores = compare(measurement(), measurement())
    assert scores == Scores(
        perplexity=pytest.approx(math.e),
        ratio=1.0,
        ratio_error=0.0,
        agreement=1.0,
        divergence=0.0,
        noise=0.0,
        common_tokens=3.0,
        flips=[],
        greedy_flips=[],
    )


def test_ratio_is_that_of_the_perplexities_and_its_error_that_of_the_mean() -> None:
    found = measurement()
    found.token_logprobs[:] = [-1.0, -1.2, -1.0, -1.2, -1.0, -1.2]
    scores = compare(found, measurement())
    assert scores.perplexity == pytest.approx(math.exp(1.1))
    assert scores.ratio == pytest.approx(math.exp(0.1))
    spread = math.sqrt(6 * 0.1**2 / 5)
    assert scores.ratio_error == pytest.approx(math.exp(0.1) * spread / math.sqrt(6))


def test_a_flip_says_how_much_the_reference_prefers_its_own() -> None:
    scores = compare(measurement(places=swapped(candidates(P), 4, 0, 2)), measurement())
    assert scores.agreement == pytest.approx(5 / 6)
    (flip,) = scores.flips
    assert (flip.where, flip.expected, flip.found) == ("4", 0, 2)
    assert flip.margin == pytest.approx(math.log(4))


def test_a_flip_to_a_token_outside_the_candidates_has_the_least_margin_it_can_have() -> None:
    places = candidates(P)
    places.ids[1, 0] = 777
    (flip,) = compare(measurement(places=places), measurement()).flips
    assert flip.found == 777
    assert flip.margin == pytest.approx((NUM_CANDIDATES - 1) * math.log(2))


def test_divergence_is_that_of_two_known_distributions() -> None:
    # half the probability of every candidate; the rest takes what is left
    scores = compare(measurement(places=candidates(P, -math.log(2))), measurement())
    mass = 1 - 2.0**-NUM_CANDIDATES
    rest = (1 - mass) * math.log((1 - mass) / (1 - mass / 2))
    assert scores.divergence == pytest.approx(mass * math.log(2) + rest)
    assert scores.noise == pytest.approx(math.log(2))


def test_greedy_continuations_are_compared_up_to_their_first_difference() -> None:
    found = measurement()
    found.greedy[1] = ([0, 1, 5], swapped(candidates(3), 1, 0, 1))
    scores = compare(found, measurement())
    assert scores.common_tokens == 2.0
    (flip,) = scores.greedy_flips
    assert flip.where == "prompt 1, token 1"
    assert flip.margin == pytest.approx(math.log(2))


def row(computed: str) -> Row:
    found = measurement(-1.5, swapped(candidates(P), 0, 0, 1))
    scores = compare(found, measurement())
    return Row("GGUF Q4_1", computed, "bfloat16", scores.perplexity, scores.ratio, scores, 1.0)


FACTS = {"places": P, "prompts": 2, "machine": {"CPU": "abacus"}, "versions": {"octavo": "9"}}


def test_a_models_rows_are_replaced_and_those_of_others_kept(tmp_path: Path) -> None:
    path = tmp_path / "results" / "fidelity.json"
    merge_json(path, {"a": Part(FACTS, [row("old")]), "b": Part(FACTS, [row("kept")])})
    parts = merge_json(path, {"a": Part(FACTS, [row("new")])})
    assert parts == {"a": Part(FACTS, [row("new")]), "b": Part(FACTS, [row("kept")])}
    assert [*json.loads(path.read_text())] == ["a", "b"]


def test_tables_come_between_the_marks_and_the_prose_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- begin of the tables -->\nold\n<!-- end of the tables -->\nafter\n"
    )
    for _ in range(2):
        write_markdown(page, {"Tiny": Part(FACTS, [row("native, float32")])})
        text = page.read_text()
        assert text.startswith("before\n")
        assert text.endswith("\nafter\n")
        assert "old" not in text
        assert text.count("### Tiny") == 1
        assert "| GGUF Q4_1 | native, float32 | bfloat16 | 4.482 | +64.87% " in text
    page.write_text("no marks")
    with pytest.raises(ValueError, match="begin of the tables"):
        write_markdown(page, {})
