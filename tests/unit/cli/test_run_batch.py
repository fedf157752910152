"""`octavo run-batch` up to the point where it hands over to `octavo/launch/batch.py`."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo.api.batch import Counts
from octavo.cli.main import main
from octavo.cli.run_batch import SERVER_ONLY
from octavo.config.args import ServerArgs
from octavo.errors import CommandFailed, StartupError
from tests.unit.cli.conftest import NoSignals


class Launch:
    """Stands in for the engine: answers each line with its number."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.error: Exception | None = None

    def __call__(
        self,
        server_args: Any,
        engine_args: Any,
        env: Any,
        log: Any,
        signals: Any,
        lines: list[bytes],
        write: Callable[[bytes], None],
        *,
        has_metrics: bool,
        on_done: Callable[[], None],
    ) -> Counts:
        self.calls.append(
            {"server": server_args, "engine": engine_args, "log": log, "metrics": has_metrics}
        )
        for number, line in enumerate(lines):
            if self.error is not None and number == 1:
                raise self.error
            write(json.dumps({"line": line.decode()}).encode() + b"\n")
            on_done()
        return Counts(answered=len(lines))


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launch]:
    made = Launch()
    monkeypatch.setattr("octavo.launch.batch.run_batch", made)
    monkeypatch.setattr("octavo.cli.run_batch.StartSignals", NoSignals)
    root = logging.getLogger()
    handlers = root.handlers[:]
    yield made
    root.handlers[:] = handlers
    for name in ("octavo", "uvicorn"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "in.jsonl").write_text("one\ntwo\n")
    return ["run-batch", "-i", str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "out.jsonl")]


def test_every_line_goes_to_the_output(
    launch: Launch, files: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*files, "--model", "m.gguf", "--max-num-seqs", "3"]) == 0
    lines = [json.loads(line)["line"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert lines == ["one", "two"]
    (call,) = launch.calls
    assert call["engine"].model == "m.gguf"
    assert call["engine"].max_num_seqs == 3
    assert call["metrics"] is False
    captured = capfd.readouterr()
    assert captured.out == ""  # the log is on standard error
    assert "Running batch: 100% Completed | 2/2 [" in captured.err
    assert "2 requests are answered, 0 have an error" in captured.err


def test_metrics_have_an_address(launch: Launch, files: list[str]) -> None:
    main([*files, "--enable-metrics", "--url", "127.0.0.1", "--port", "81"])
    main([*files, "--enable-metrics", "--url", "127.0.0.1", "--host", "::1"])
    first, second = (call["server"] for call in launch.calls)
    assert (first.host, first.port) == ("127.0.0.1", 81)
    assert second.host == "::1"
    assert launch.calls[0]["metrics"] is True


def test_a_batch_that_is_cut_short_says_where_its_lines_are(
    launch: Launch, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launch.error = CommandFailed("ended by SIGTERM", exit_code=143)
    assert main(files) == 143
    expected = f"octavo: error: ended by SIGTERM; the first 1 lines are in {tmp_path}/out.jsonl"
    assert capsys.readouterr().err.splitlines()[-1] == f"{expected}.part"
    assert (tmp_path / "out.jsonl.part").read_text() == '{"line": "one"}\n'


def test_a_failed_start_is_told_as_it_is(
    launch: Launch, files: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def fail(*_: Any, **__: Any) -> Counts:
        raise StartupError("no such model")

    monkeypatch.setattr("octavo.launch.batch.run_batch", fail)
    assert main(files) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "octavo: error: no such model"
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-i", "x"], "the following arguments are required: -o/--output-file"),
        (["-i", "/nowhere", "-o", "x"], "--input-file /nowhere: No such file"),
        (["-i", "/dev/null", "-o", "x"], "--input-file /dev/null holds no request"),
        (["-i", "/etc/passwd", "-o", "/nowhere/x"], "/nowhere is no folder"),
        (["-i", "x", "-o", "y", "--api-key", "k"], "--api-key is for octavo serve"),
        (["-i", "x", "-o", "y", "--ssl-keyfile", "k"], "--ssl-keyfile is for octavo serve"),
        (["-i", "x", "-o", "y", "--input-fil", "z"], "unknown flag --input-fil"),
        (["-i", "x", "-o", "y", "-tp", "2"], "--tensor-parallel-size is not supported"),
    ],
)
def test_wrong_usage_is_one_sentence(
    launch: Launch, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run-batch", *words]) == 2
    assert says in capsys.readouterr().err.splitlines()[-1]
    assert launch.calls == []


def test_the_servers_own_flags_exist() -> None:
    assert set(SERVER_ONLY) <= set(vars(ServerArgs()))
