"""Where the worker runs."""

from __future__ import annotations

import pytest

from octavo.config.rules.executor import choose_executor


@pytest.mark.parametrize("backend", [None, "uni"])
def test_one_worker_lives_in_the_engine_process(backend: str | None) -> None:
    assert choose_executor(backend) == ("uni", "")


def test_mp_is_answered_with_the_reason() -> None:
    value, reason = choose_executor("mp")
    assert value == "uni"
    assert "instead of mp" in reason
