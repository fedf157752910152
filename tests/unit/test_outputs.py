"""What callers get."""

from __future__ import annotations

import pytest

from octavo.outputs import FlatLogprobs, Logprob

POSITIONS = [
    {5: Logprob(-0.5, 2, "a"), 7: Logprob(-0.1, 1, None)},
    {7: Logprob(-0.2, 1, "b")},
    {1: Logprob(-3.0, None, "c"), 2: Logprob(-0.1, 1, "d"), 3: Logprob(-4.0, 2, "e")},
]


def test_flat_logprobs_read_like_the_list_of_positions() -> None:
    flat = FlatLogprobs(POSITIONS)
    assert len(flat) == 3
    assert list(flat) == POSITIONS
    assert flat == POSITIONS
    assert flat[-1] == POSITIONS[-1]
    assert list(flat[-1]) == [1, 2, 3]  # in order
    assert flat[1:] == POSITIONS[1:]
    assert isinstance(flat[:0], FlatLogprobs)
    assert flat != POSITIONS[:2]


def test_flat_logprobs_are_a_few_lists() -> None:
    flat = FlatLogprobs()
    flat.extend(POSITIONS)
    assert flat.start_indices == [0, 2, 3]
    assert flat.end_indices == [2, 3, 6]
    assert flat.token_ids == [5, 7, 7, 1, 2, 3]
    assert flat.ranks == [2, 1, 1, None, 1, 2]
    assert flat.decoded_tokens == ["a", None, "b", "c", "d", "e"]
    assert flat.logprobs == [-0.5, -0.1, -0.2, -3.0, -0.1, -4.0]


def test_positions_of_flat_logprobs_stay_as_they_are() -> None:
    flat = FlatLogprobs(POSITIONS)
    for change in (
        lambda: flat.insert(0, {}),
        lambda: flat.__setitem__(0, {}),
        lambda: flat.__delitem__(0),
    ):
        with pytest.raises(TypeError):
            change()
    assert flat == POSITIONS
