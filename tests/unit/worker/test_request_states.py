"""Rows of requests."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.messages.step import SchedulerOutput
from tests.unit.worker.conftest import MAX_REQUESTS, Rig, new


def update(rig: Rig, *, add=(), extend=None, finished=()) -> None:
    rig.states.update(SchedulerOutput(list(add), extend or {}, {}, 0, list(finished)))


def draw(rig: Rig, request_id: str, num_computed_tokens: int) -> None:
    rows = rig.states.rows([request_id])
    computed = np.array([num_computed_tokens], np.int32)
    rig.states.advance(rows, computed, rig.states.num_tokens[rows] + 1)


def test_a_new_request_fills_a_row(rig: Rig) -> None:
    update(rig, add=[new("a", [7, 8, 9], [5], num_prompt_tokens=2, num_computed_tokens=1)])
    row = rig.states.row("a")
    assert rig.states.token_ids[row, :3].tolist() == [7, 8, 9]
    assert rig.states.num_tokens[row] == 3
    assert rig.states.num_prompt_tokens[row] == 2
    assert rig.states.num_computed_tokens[row] == 1
    assert rig.states.block_tables[0, row, 0] == 5


def test_blocks_are_appended(rig: Rig) -> None:
    update(rig, add=[new("a", [1] * 9, [5, 6, 7])])
    update(rig, extend={"a": [[2]]})
    update(rig, extend={"a": [[9]]})
    assert rig.states.block_tables[0, rig.states.row("a"), :5].tolist() == [5, 6, 7, 2, 9]


def test_it_knows_the_last_block_that_anybody_has_had(rig: Rig) -> None:
    assert rig.states.num_blocks_used == 0
    update(rig, add=[new("a", [1] * 9, [5, 7, 6])])
    assert rig.states.num_blocks_used == 8
    update(rig, extend={"a": [[9, 2]]})
    update(rig, finished=["a"], add=[new("b", [1], [3])])
    assert rig.states.num_blocks_used == 10


def test_rows_are_used_again(rig: Rig) -> None:
    for round_number in range(3 * MAX_REQUESTS):
        name = f"request-{round_number}"
        update(rig, add=[new(name, [round_number, 1], [round_number])])
        row = rig.states.row(name)
        assert rig.states.token_ids[row, :2].tolist() == [round_number, 1]
        assert rig.states.block_tables[0, row, 0] == round_number
        update(rig, finished=[name])
    assert len(rig.states) == 0


def test_a_preempted_request_comes_back_with_what_it_generated(rig: Rig) -> None:
    update(rig, add=[new("a", [1, 2], [3])])
    draw(rig, "a", 2)
    update(rig, finished=["a"], add=[new("a", [1, 2, 50], [8], num_prompt_tokens=2)])
    row = rig.states.row("a")
    assert rig.states.num_tokens[row] == 3
    assert rig.states.block_tables[0, row, 0] == 8


def test_an_unknown_finished_request_is_nothing(rig: Rig) -> None:
    update(rig, finished=["never sent"])
    assert len(rig.states) == 0


def test_a_request_sent_twice_is_our_mistake(rig: Rig) -> None:
    update(rig, add=[new("a", [1], [1])])
    with pytest.raises(AssertionError, match="known already"):
        update(rig, add=[new("a", [1], [1])])


def test_a_full_window_has_room(rig: Rig) -> None:
    update(rig, add=[new("a", [*range(64)], list(range(16)))])
    assert rig.states.token_ids[rig.states.row("a")].tolist() == [*range(64)]


def test_drawn_tokens_are_counted_but_not_kept(rig: Rig) -> None:
    update(rig, add=[new("a", [1, 2], [3])])
    draw(rig, "a", 2)
    row = rig.states.row("a")
    assert (rig.states.num_given_tokens[row], rig.states.num_tokens[row]) == (2, 3)
    assert rig.states.num_computed_tokens[row] == 2
