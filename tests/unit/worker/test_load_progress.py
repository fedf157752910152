"""The bar while weights load."""

from __future__ import annotations

import io

from octavo.worker.load_progress import load_progress
from tests.fakes.ops import FakeWeights


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_the_bar_move_once_per_tensor() -> None:
    terminal = Terminal()
    with load_progress(FakeWeights(), 3, stream=terminal, delay_s=0) as weights:
        assert weights.linear("a", 4, 4) == "a"
        weights.vector("b", 4)
        weights.linear("a", 4, 4)
        weights.optional_vector("c", 4)
    assert "3/3" in terminal.getvalue()


def test_a_fast_load_shows_nothing() -> None:
    terminal = Terminal()
    with load_progress(FakeWeights(), 1, stream=terminal) as weights:
        weights.linear("a", 4, 4)
    assert terminal.getvalue() == ""


def test_without_a_terminal_weights_are_what_they_were() -> None:
    given = FakeWeights()
    with load_progress(given, 1, stream=io.StringIO()) as weights:
        assert weights is given
