from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.errors import StartupError
from octavo.transport.runtime_dir import MAX_SOCKET_PATH_BYTES, RuntimeDir


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder with a short path, as a temporary folder is; pytest's own are too deep."""
    with tempfile.TemporaryDirectory(prefix="rt-") as path:
        yield Path(path)


def folders(base: Path) -> list[str]:
    return sorted(os.listdir(base))


def leave_one_behind(base: Path) -> str:
    """A process makes a folder with a file in it and is killed."""
    code = (
        "import os, signal, sys; from octavo.transport.runtime_dir import RuntimeDir;"
        f"d = RuntimeDir([{str(base)!r}]); open(d.socket_path('s'), 'w').close();"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=False)
    (name,) = folders(base)
    return name


def test_the_folder_is_private_and_goes_with_its_content(base: Path) -> None:
    runtime_dir = RuntimeDir([str(base)])
    assert stat.S_IMODE(os.stat(runtime_dir.path).st_mode) == 0o700
    Path(runtime_dir.socket_path("core0")).touch()
    runtime_dir.remove()
    runtime_dir.remove()
    assert folders(base) == []


def test_what_a_killed_owner_left_is_removed_at_the_next_start(base: Path) -> None:
    left = leave_one_behind(base)
    runtime_dir = RuntimeDir([str(base)])
    assert left not in folders(base)
    runtime_dir.remove()


def test_what_a_living_owner_has_is_left_alone(base: Path) -> None:
    first = RuntimeDir([str(base)])
    second = RuntimeDir([str(base)])
    assert len(folders(base)) == 2
    first.remove()
    second.remove()


def test_what_others_put_there_is_left_alone(base: Path) -> None:
    (base / "octavo-notes.txt").touch()
    (base / "other").mkdir()
    (base / "octavo-1-0a1b2c3d").mkdir()  # no lock yet: its owner is making it
    RuntimeDir([str(base)]).remove()
    assert folders(base) == ["octavo-1-0a1b2c3d", "octavo-notes.txt", "other"]


def test_an_old_folder_without_a_lock_is_removed(base: Path) -> None:
    (base / "octavo-1-0a1b2c3d").mkdir()
    os.utime(base / "octavo-1-0a1b2c3d", (1, 1))
    RuntimeDir([str(base)]).remove()
    assert folders(base) == []


def test_a_base_that_does_not_work_is_passed_over(base: Path) -> None:
    long = base / ("x" * 100)
    long.mkdir()
    runtime_dir = RuntimeDir([str(base / "missing"), str(long), str(base)])
    assert os.path.dirname(runtime_dir.path) == str(base)
    assert folders(long) == []
    runtime_dir.remove()


def test_socket_paths_fit_into_a_socket_address(base: Path) -> None:
    deep = base
    while len(str(deep)) < 55:
        deep = deep / "deep"
        deep.mkdir()
    runtime_dir = RuntimeDir([str(deep)])
    assert len(os.fsencode(runtime_dir.socket_path("core0"))) <= MAX_SOCKET_PATH_BYTES
    runtime_dir.remove()


def test_no_base_at_all_is_a_sentence_with_the_reasons(base: Path) -> None:
    with pytest.raises(StartupError, match=r"missing: No such file.*Set TMPDIR"):
        RuntimeDir([str(base / "missing")])


def test_an_old_folder_that_somebody_else_named_stays(base: Path) -> None:
    (base / "octavo-models").mkdir()
    (base / "octavo-models" / "weights").touch()
    os.utime(base / "octavo-models", (1, 1))
    RuntimeDir([str(base)]).remove()
    assert folders(base) == ["octavo-models"]
    assert folders(base / "octavo-models") == ["weights"]
