"""Guessing what a user meant."""

from __future__ import annotations

from octavo.config.flags.nearest import did_you_mean

NAMES = ("max-model-len", "max-num-seqs", "port", "host")


def test_a_typing_mistake_is_answered_with_the_name() -> None:
    assert did_you_mean("max-modle-len", NAMES) == "; did you mean max-model-len?"


def test_a_beginning_is_completed() -> None:
    assert did_you_mean("max-model", NAMES) == "; did you mean max-model-len?"


def test_a_part_is_completed() -> None:
    assert did_you_mean("model-len", NAMES) == "; did you mean max-model-len?"


def test_two_names_may_fit() -> None:
    assert did_you_mean("max", NAMES) == "; did you mean max-model-len or max-num-seqs?"


def test_nothing_near_gives_nothing() -> None:
    assert did_you_mean("zzzz", NAMES) == ""
    assert did_you_mean("", NAMES) == ""


def test_names_are_framed() -> None:
    assert did_you_mean("prot", NAMES, shown="--{}") == "; did you mean --port?"
