from __future__ import annotations

import subprocess
import sys
from pathlib import Path

INIT = "import {name}.heavy\nfrom {name}.part import VALUE\nOTHER = VALUE + 1\n"


def run(folder: Path, program: str) -> list[str]:
    package = folder / "parcel"
    package.mkdir()
    (package / "__init__.py").write_text(INIT.format(name="parcel"))
    (package / "part.py").write_text("VALUE = 1\n")
    (package / "heavy.py").write_text("print('heavy')\n")
    program = (
        "import sys\nfrom octavo.launch.lazy_package import defer_package_file\n"
        f"sys.path.insert(0, {str(folder)!r})\n" + program
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_a_submodule_is_imported_without_the_package_file(tmp_path: Path) -> None:
    program = "defer_package_file('parcel')\nfrom parcel.part import VALUE\nprint(VALUE)"
    assert run(tmp_path, program) == ["1"]


def test_the_package_file_is_executed_when_a_name_of_it_is_needed(tmp_path: Path) -> None:
    program = (
        "defer_package_file('parcel')\nfrom parcel.part import VALUE\nimport parcel\n"
        "print(parcel.OTHER)\nfrom parcel import OTHER\nprint(hasattr(parcel, 'missing'))"
    )
    assert run(tmp_path, program) == ["heavy", "2", "False"]


def test_a_package_that_was_imported_stays_as_it_is(tmp_path: Path) -> None:
    program = "import parcel\ndefer_package_file('parcel')\nprint(parcel.OTHER)"
    assert run(tmp_path, program) == ["heavy", "2"]


def test_a_package_that_is_not_there_fails_where_it_is_imported(tmp_path: Path) -> None:
    program = (
        "defer_package_file('no_such_parcel')\n"
        "try:\n    import no_such_parcel.part\nexcept ModuleNotFoundError:\n    print('missing')"
    )
    assert run(tmp_path, program) == ["missing"]
