from __future__ import annotations

import time

import pytest

from octavo.core.phase_timer import PhaseTimer


def test_phases_follow_one_another_without_gaps() -> None:
    start_s = time.monotonic() - 1.0
    timer = PhaseTimer("EngineCore", start_s)
    timer.end("imports")
    with timer.phase("load"):
        pass
    imports, load = timer.phases
    assert (imports.process, imports.name, load.name) == ("EngineCore", "imports", "load")
    assert imports.start_s == start_s
    assert imports.end_s - imports.start_s >= 1.0
    assert load.start_s == imports.end_s
    assert load.end_s >= load.start_s


def test_a_phase_that_fails_is_measured_too() -> None:
    timer = PhaseTimer("EngineCore", time.monotonic())
    with pytest.raises(OSError, match="gone"), timer.phase("load"):
        raise OSError("gone")
    assert [phase.name for phase in timer.phases] == ["load"]
