"""What happens to a flag that is set."""

from __future__ import annotations

import pytest

from octavo.config.flags.flag import BOOL, INT, STR, Flag, hint, removed, unsupported
from octavo.config.flags.judge import judge
from octavo.errors import ConfigError


def test_a_working_flag_passes_in_silence() -> None:
    assert judge(Flag("x", INT, 1, "help"), 2) is None


def test_a_hint_leaves_a_sentence() -> None:
    eager = hint("eager", BOOL, False, "help", "there is nothing to compile")
    assert judge(eager, True) == "--eager has no effect here: there is nothing to compile"


def test_the_default_of_a_hint_is_silent() -> None:
    assert judge(hint("eager", BOOL, False, "help", "why"), False) is None


def test_an_unsupported_flag_is_refused_with_its_reason() -> None:
    lora = unsupported("enable-lora", BOOL, False, "help", "adapters are not available yet")
    with pytest.raises(
        ConfigError, match=r"^--enable-lora is not supported: adapters are not available yet$"
    ):
        judge(lora, True)
    assert judge(lora, False) is None


def test_an_unsupported_value_is_refused_with_the_supported_ones() -> None:
    runner = Flag(
        "runner", STR, "auto", "help", supported=("auto", "generate"), why="no pooling models"
    )
    assert judge(runner, "generate") is None
    with pytest.raises(
        ConfigError, match=r"--runner pooling is not supported \(no pooling models\); supported: a"
    ):
        judge(runner, "pooling")


def test_a_removed_flag_warns_or_fails() -> None:
    assert "use y" in (judge(removed("x", BOOL, "use y"), True) or "")
    with pytest.raises(ConfigError, match="--x is gone from vLLM's command line: use y"):
        judge(removed("x", BOOL, "use y", fatal=True), True)
