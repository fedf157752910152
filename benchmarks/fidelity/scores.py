"""How far one measurement is from another: ratio of perplexities, agreement, divergence, flips.

Knows nothing of: models, engines, files.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.fidelity.measure import Candidates, Measurement


@dataclass(frozen=True)
class Flip:
    """A place where the most likely token is another one than the reference's.

    Attributes:
        where: number of the scored place, or `prompt N, token M` of a greedy continuation.
        expected: the reference's most likely token.
        found: this route's.
        margin: by how much the reference prefers its own, in log-probability; where `found` is not
            among its candidates, at least so much.
    """

    where: str
    expected: int
    found: int
    margin: float


@dataclass(frozen=True)
class Scores:
    """One measurement against the reference over the same places.

    Attributes:
        perplexity: of this one.
        ratio: to the reference's perplexity.
        ratio_error: standard error of `ratio`, from the differences place by place.
        agreement: share of places with the same most likely token.
        divergence: mean Kullback-Leibler divergence of the reference from this one in nats, over
            the candidates that both list and one class of all other tokens: a lower bound.
        noise: root mean square difference of the log-probability of the reference's most likely
            token.
        common_tokens: mean length of the common beginning of the greedy continuations.
        flips: every place where the most likely tokens differ.
        greedy_flips: the first difference of each continuation that has one.
    """

    perplexity: float
    ratio: float
    ratio_error: float
    agreement: float
    divergence: float
    noise: float
    common_tokens: float
    flips: list[Flip]
    greedy_flips: list[Flip]


def perplexity(token_logprobs: npt.NDArray[np.float64]) -> float:
    """exp of the mean negative log-probability."""
    return float(np.exp(-token_logprobs.mean()))


def compare(found: Measurement, reference: Measurement) -> Scores:
    """Scores of `found`."""
    difference = reference.token_logprobs - found.token_logprobs
    ratio = float(np.exp(difference.mean()))
    places = range(len(difference))
    flips = [
        flip
        for place in places
        if (flip := _flip(f"{place}", place, found.places, reference.places)) is not None
    ]
    lengths, greedy_flips = [], []
    for number, (ours, theirs) in enumerate(zip(found.greedy, reference.greedy, strict=True)):
        length = _common_length(ours[0], theirs[0])
        lengths.append(length)
        if length < len(theirs[0]):
            flip = _flip(f"prompt {number}, token {length}", length, ours[1], theirs[1])
            assert flip is not None, "greedy tokens differ where the most likely ones do not"
            greedy_flips.append(flip)
    return Scores(
        perplexity=perplexity(found.token_logprobs),
        ratio=ratio,
        ratio_error=ratio * float(difference.std(ddof=1)) / len(difference) ** 0.5,
        agreement=1 - len(flips) / len(difference),
        divergence=float(np.mean([_divergence(p, found.places, reference.places) for p in places])),
        noise=_noise(found.places, reference.places),
        common_tokens=float(np.mean(lengths)),
        flips=flips,
        greedy_flips=greedy_flips,
    )


def _flip(where: str, place: int, found: Candidates, reference: Candidates) -> Flip | None:
    expected, got = int(reference.ids[place, 0]), int(found.ids[place, 0])
    if expected == got:
        return None
    listed = reference.logprobs[place][reference.ids[place] == got]
    other = listed[0] if len(listed) else reference.logprobs[place, -1]
    return Flip(where, expected, got, float(reference.logprobs[place, 0] - other))


def _common_length(ours: list[int], theirs: list[int]) -> int:
    for length, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if one != other:
            return length
    return len(ours)


def _divergence(place: int, found: Candidates, reference: Candidates) -> float:
    _, ours, theirs = np.intersect1d(found.ids[place], reference.ids[place], return_indices=True)
    q, p = np.exp(found.logprobs[place, ours]), np.exp(reference.logprobs[place, theirs])
    # rounding may leave a little less than nothing for the rest
    q, p = np.append(q, max(1 - q.sum(), 1e-9)), np.append(p, max(1 - p.sum(), 1e-9))
    return float((p * np.log(p / q)).sum())


def _noise(found: Candidates, reference: Candidates) -> float:
    is_same = found.ids == reference.ids[:, :1]
    differences = (found.logprobs - reference.logprobs[:, :1])[is_same]
    return float(np.sqrt((differences**2).mean()))
