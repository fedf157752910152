"""The table of a profile: which limit binds, and how near an operation comes to it."""

from __future__ import annotations

import pytest

from octavo.cli.profile_table import limit_seconds, profile_table
from octavo.messages.profile import OpTime, Profile

LIMITS = {"read": 10e9, "int8": 1000e9, "bf16": 400e9, "f32": 100e9}
FEW_ROWS = OpTime("LM_HEAD", 2, 0.5, 4 * 10**9, {"int8": 10**11})
MANY_ROWS = OpTime("LINEAR", 60, 2.0, 10**9, {"int8": 10**12})
NORM = OpTime("RMS_NORM", 62, 0.25, 0, {})
NEVER_RUN = OpTime("MASK", 0, 0.0, 0, {})


@pytest.mark.parametrize(("op", "seconds"), [(FEW_ROWS, 0.4), (MANY_ROWS, 1.0), (NORM, 0.0)])
def test_the_slower_of_reading_and_computing_is_the_limit(op: OpTime, seconds: float) -> None:
    assert limit_seconds(op, LIMITS) == pytest.approx(seconds)


def test_every_operation_that_ran_has_a_line() -> None:
    table = profile_table(Profile([MANY_ROWS, FEW_ROWS, NORM, NEVER_RUN], 10, LIMITS))
    lines = [line.split() for line in table.splitlines()]
    assert lines[1] == [
        *("LINEAR", "60", "200000.0", "72.7%", "0.5", "500"),
        *("50%", "of", "int8"),
    ]
    assert lines[2][:4] == ["LM_HEAD", "2", "50000.0", "18.2%"]
    assert lines[2][-3:] == ["80%", "of", "read"]
    assert lines[3] == ["RMS_NORM", "62", "25000.0", "9.1%", "-", "-", "-"]
    assert lines[4] == ["all", "275000.0", "over", "10", "steps"]
    assert "10.0 GB/s read" in table
    assert "int8 1000, bf16 400, f32 100" in table
