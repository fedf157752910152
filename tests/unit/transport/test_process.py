from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from octavo.transport.process import ChildProcess, runtime_dir_bases, start_child
from tests.fakes.child_main import TARGET

LIMIT_S = 20.0
ROOT = Path(__file__).parents[3]


@pytest.fixture
def start() -> Iterator[Callable[..., ChildProcess]]:
    children = []

    def make(**options: str) -> ChildProcess:
        children.append(start_child("test child", TARGET, options))
        return children[-1]

    yield make
    for child in children:
        child.close()


def eventually(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Waits for something that has no descriptor to poll."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        select.select([], [], [], 0.01)


def read_when_there(path: Path) -> str:
    eventually(path.exists)
    return path.read_text()


def is_alive(pid: int) -> bool:
    """A zombie is not: nobody may be there to reap an orphan."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_the_end_of_a_child_is_seen_at_once(start: Callable[..., ChildProcess]) -> None:
    child = start(what="exit", status="3")
    assert select.select([child], [], [], LIMIT_S)[0]
    assert child.wait(LIMIT_S) == 3
    assert child.describe_end() == f"test child (pid {child.pid}) ended with exit status 3"


def test_a_killed_child_is_described_with_its_signal(start: Callable[..., ChildProcess]) -> None:
    child = start(what="kill")
    assert select.select([child], [], [], LIMIT_S)[0]
    assert "was ended by SIGKILL" in child.describe_end()
    assert child.poll() == -signal.SIGKILL


def test_a_running_child_can_be_waited_for_and_killed(start: Callable[..., ChildProcess]) -> None:
    child = start()
    assert child.poll() is None
    assert child.wait(0.0) is None
    child.kill()
    child.kill()
    assert child.poll() == -signal.SIGKILL


def test_a_child_is_named_keeps_its_options_and_takes_no_signals_of_the_group(
    start: Callable[..., ChildProcess], tmp_path: Path
) -> None:
    file = tmp_path / "report"
    start(what="report", file=str(file), text="a = b; c")
    title, comm, blocked, text, stdin = read_when_there(file).split("\n")
    assert title == comm == "Octavo::Test"
    assert blocked == "True"
    assert text == "a = b; c"
    assert stdin == "/dev/null"


def test_a_file_named_like_a_module_in_the_current_folder_does_no_harm(
    start: Callable[..., ChildProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "threading.py").write_text("raise SystemExit(99)")
    monkeypatch.chdir(tmp_path)
    assert start(what="exit", status="0").wait(LIMIT_S) == 0


def test_signals_of_the_parent_are_not_blocked_by_starting(
    start: Callable[..., ChildProcess],
) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    start(what="exit", status="0")
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_children_are_started_from_the_main_thread_only() -> None:
    errors: list[BaseException] = []

    def attempt() -> None:
        try:
            start_child("x", TARGET, {})
        except AssertionError as error:
            errors.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert "main one" in str(errors[0])


def parent_process(what: str, file: Path) -> subprocess.Popen[bytes]:
    """A process that starts a child which writes `file`, and waits for ever."""
    code = (
        "import threading; from octavo.transport.process import start_child;"
        "from tests.fakes.child_main import say;"
        f"c = start_child('c', {TARGET!r}, {{'what': {what!r}, 'file': {str(file)!r}}});"
        f"say({str(file)!r} + '.pid', str(c.pid)); threading.Event().wait()"
    )
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)


@pytest.mark.parametrize("what", ["be a parent", "hold interpreter"])
def test_kill_9_of_the_parent_ends_all_below_it(what: str, tmp_path: Path) -> None:
    file = tmp_path / "said"
    with parent_process(what, file) as parent:
        said = read_when_there(file)
        pids = [int(read_when_there(Path(f"{file}.pid")))]
        pids += [int(said)] if said.isdigit() else []
        assert all(map(is_alive, pids))
        parent.kill()
    eventually(lambda: not any(map(is_alive, pids)), limit_s=2.0)


def test_a_parent_that_is_killed_at_once_leaves_no_child(tmp_path: Path) -> None:
    file = tmp_path / "said"
    with parent_process("", file) as parent:
        pid = int(read_when_there(Path(f"{file}.pid")))  # the child is still starting
        parent.kill()
    eventually(lambda: not is_alive(pid), limit_s=2.0)


def test_a_process_that_inherited_descriptors_does_not_keep_a_child_seeming_alive(
    start: Callable[..., ChildProcess], tmp_path: Path
) -> None:
    file = tmp_path / "sibling"
    child = start(what="start a sibling", file=str(file))
    sibling = int(read_when_there(file))
    try:
        os.kill(child.pid, signal.SIGKILL)
        assert select.select([child], [], [], 2.0)[0]
    finally:
        os.kill(sibling, signal.SIGKILL)


def test_socket_folders_need_no_home_and_no_user_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "USER", "XDG_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    assert "/tmp" in runtime_dir_bases()


def test_socket_folders_named_by_the_environment_come_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert runtime_dir_bases()[0] == str(tmp_path)
