from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

from octavo.messages.engine import PhaseTiming
from octavo.metrics.process_start import process_start_s
from octavo.metrics.startup import StartupTimeline


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def timeline() -> tuple[StartupTimeline, Clock]:
    clock = Clock()
    made = StartupTimeline("APIServer", start_s=100.0, clock=clock)
    for name, end_s in (("flags", 100.1), ("build app", 100.25), ("wait for EngineCore", 100.5)):
        clock.now_s = end_s
        made.end(name)
    made.add([PhaseTiming("EngineCore", "load weights", 100.2, 100.45)])
    return made, clock


def test_phases_of_the_first_process_add_up_to_the_wall_time() -> None:
    made, clock = timeline()
    own = [p for p in made.phases if p.process == "APIServer"]
    assert sum(p.end_s - p.start_s for p in own) == pytest.approx(clock.now_s - 100.0)
    assert made.coverage(clock.now_s) == pytest.approx(1.0)


def test_coverage_counts_overlapping_phases_once_and_gaps_not_at_all() -> None:
    made = StartupTimeline("a", start_s=0.0)
    made.add(
        [
            PhaseTiming("a", "x", 0.0, 4.0),
            PhaseTiming("b", "y", 2.0, 6.0),
            PhaseTiming("b", "inside", 3.0, 4.0),
            PhaseTiming("a", "z", 8.0, 12.0),
        ]
    )
    assert made.coverage(10.0) == pytest.approx(0.8)


def test_the_table_has_a_row_for_each_phase() -> None:
    made, clock = timeline()
    assert made.table(clock.now_s) == [
        "Start-up took 0.500 s from exec to ready; the phases cover 100.0% of it:",
        "  APIServer   flags                0.000 - 0.100  0.100 s",
        "  APIServer   build app            0.100 - 0.250  0.150 s",
        "  APIServer   wait for EngineCore  0.250 - 0.500  0.250 s",
        "  EngineCore  load weights         0.200 - 0.450  0.250 s",
    ]


def test_the_trace_is_chromes_format(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made, _ = timeline()
    caplog.set_level(logging.INFO)
    made.finish(str(tmp_path / "trace.json"), pid=42)
    assert "Start-up took 0.500 s" in caplog.text
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {e["args"]["name"]: e["pid"] for e in events if e["ph"] == "M"} == {
        "APIServer": 42,
        "EngineCore": 43,
    }
    load = next(e for e in events if e["name"] == "load weights")
    assert (load["ph"], load["ts"], load["dur"], load["pid"]) == ("X", 200_000, 250_000, 43)


def test_a_trace_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, _ = timeline()
    made.finish(str(tmp_path / "no" / "folder.json"), pid=42)
    assert "was not written: No such file" in caplog.text


def test_a_process_knows_when_it_was_made() -> None:
    before_s = time.monotonic()
    code = "from octavo.metrics.process_start import process_start_s as s; print(s())"
    start_s = float(subprocess.check_output([sys.executable, "-c", code]))
    tick_s = 0.02
    assert before_s - tick_s <= start_s <= time.monotonic()
    assert process_start_s() < before_s
    assert abs(process_start_s() - process_start_s()) < tick_s
