"""The `octavo` command as a shell sees it."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from octavo import __version__
from octavo.cli.main import main


def octavo(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "octavo", *words], capture_output=True, text=True, timeout=30
    )


@pytest.mark.parametrize("flag", ["-v", "--version"])
def test_the_version_is_printed(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([flag]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "usage: octavo COMMAND" in out
    assert "serve" in out


def test_no_command_is_wrong_usage_and_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: octavo COMMAND" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["srve"], "unknown command 'srve'; did you mean octavo serve?"),
        (["xyz"], "unknown command 'xyz'; octavo --help lists the commands"),
        (["--port", "1"], "unknown flag --port; flags of the server come after octavo serve"),
        (["m.gguf"], "unknown command 'm.gguf'; to serve a model: octavo serve m.gguf"),
        (["bench", "sweep"], "octavo bench sweep does not exist in Octavo"),
        (["snapshot"], "octavo snapshot does not exist in Octavo"),
        (["serve", "--prot", "1"], "unknown flag --prot; did you mean --port?"),
        (["serve", "--port", "x"], "--port must be an integer, got 'x'"),
        (["serve", "-tp", "2"], "--tensor-parallel-size is not supported: one device"),
        (["serve", "--task", "embed"], "--task is gone from vLLM's command line"),
        (["serve", "--help=zzzz"], "no flag, group or text matches 'zzzz'"),
        (["serve", "--config", "none.yaml"], "none.yaml: No such file or directory"),
    ],
)
def test_wrong_usage_is_one_sentence_on_stderr_and_exit_code_2(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("octavo: error: ")
    assert sentence in captured.err
    assert captured.err.count("\n") == 1


def test_the_module_runs_as_a_program_and_hands_on_the_exit_code() -> None:
    done = octavo("serve", "--nonsense")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("octavo: error: unknown flag --nonsense")


def test_an_interrupt_before_anything_is_started_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("octavo.cli.serve.parse_serve", interrupt)
    assert main(["serve"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m octavo serve --help=all | head -1"],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.stdout == "usage: octavo serve [MODEL] [flags]\n"
    assert done.stderr == ""


def test_help_takes_less_than_a_quarter_of_a_second() -> None:
    def cpu_seconds() -> float:  # what other processes take at this moment does not count
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        octavo("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(cpu_seconds() for _ in range(5)) < 0.25


HEAVY = {"argparse", "asyncio", "dataclasses", "fastapi", "logging", "msgspec", "numpy", "yaml"}


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["serve", "--help=all"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys; from octavo.cli.main import main; "
        f"main({words!r}); print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert not HEAVY & set(done.stderr.split())
    assert "octavo.cli.main" in done.stderr.split()
