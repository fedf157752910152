"""README.md lists the tests of this folder, all of them and no others."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
#: about the page itself
OWN = {"test_this_page.py", "test_later_rows.py"}


def test_the_page_lists_the_tests_that_exist() -> None:
    listed = set(re.findall(r"`(test_\w+)`", (HERE / "README.md").read_text()))
    found = {
        name
        for file in HERE.glob("test_*.py")
        if file.name not in OWN
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)
    }
    assert listed == found
