from __future__ import annotations

from pathlib import Path

import pytest

from octavo.config.rules.tool_parser import check_plugin, choose_tool_parser
from octavo.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "is_auto_choice", "chosen"),
    [
        (None, False, None),
        ("", False, None),
        (None, True, "auto"),
        ("hermes", True, "hermes"),
        ("hermes", False, "hermes"),
    ],
)
def test_a_model_that_may_choose_has_a_parser(
    given: str | None, is_auto_choice: bool, chosen: str | None
) -> None:
    assert choose_tool_parser(given, is_auto_choice=is_auto_choice) == chosen


def test_plug_ins_that_are_not_there_are_found_at_once(tmp_path: Path) -> None:
    check_plugin("--tool-parser-plugin", "")
    (tmp_path / "plugin.py").write_text("")
    check_plugin("--tool-parser-plugin", str(tmp_path / "plugin.py"))
    with pytest.raises(ConfigError, match=r"--tool-parser-plugin .*/no\.py is not a file"):
        check_plugin("--tool-parser-plugin", str(tmp_path / "no.py"))
