"""docs/user-cases.md names tests that exist, and each case at least one of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = {
    cells[0]: cells[1:]
    for line in (ROOT / "docs/user-cases.md").read_text().splitlines()
    if line.startswith("| C") and (cells := [c.strip() for c in line.strip("|").split("|")])
    if cells[0] != "Case"
}
#: these must be there; others belong to features that are not
REQUIRED = [
    1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32, 34, 35, 37,
    38, 40, 41, 43, 44, 46, 47, 49, 50, 52, 53, 55, 56, 58, 59, 61, 62, 64, 65, 67, 68, 70, 71, 73,
    74, 76, 77, 79, 80, 82, 83, 95, 97, 98, 100, 101, 103, 104, 106, 107, 109, 110, 112, 113, 115,
    116, 118, 119, 121, 122, 124, 125, 127,
]  # fmt: skip


def all_tests() -> set[str]:
    return {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)
    }


TESTS = all_tests()


def test_every_required_case_is_on_the_page() -> None:
    assert {f"C{number}" for number in REQUIRED} <= set(ROWS)


@pytest.mark.parametrize("case", ROWS)
def test_a_case_says_what_happens_and_names_tests_that_exist(case: str) -> None:
    what, decision, tests = ROWS[case]
    assert what
    assert decision
    listed = set(re.findall(r"`(test_\w+)`", tests))
    assert listed <= TESTS
    prefix = f"test_{case.lower()}_"
    assert any(name.startswith(prefix) for name in listed)
