"""`octavo serve` up to the point where it hands over to `octavo.launch.serve`."""

from __future__ import annotations

import gc
import logging
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from octavo.cli.main import main
from octavo.config.args import EngineArgs, ServerArgs
from octavo.envs import Env
from octavo.errors import StartupError


class Launch(types.ModuleType):
    """Stands in for octavo.launch.serve: records what it is given."""

    def __init__(self) -> None:
        super().__init__("octavo.launch.serve")
        self.calls: list[tuple[ServerArgs, EngineArgs, Env]] = []
        self.result: int | StartupError = 0

    def serve(
        self, server_args: ServerArgs, engine_args: EngineArgs, env: Env, signals: object
    ) -> int:
        self.calls.append((server_args, engine_args, env))
        if isinstance(self.result, StartupError):
            raise self.result
        return self.result


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launch]:
    module = Launch()
    monkeypatch.setitem(sys.modules, "octavo.launch.serve", module)
    for name in list(os.environ):
        if name.startswith(("VLLM_", "OCTAVO_", "HF_")):
            monkeypatch.delenv(name)
    loggers = [logging.getLogger(name) for name in ("", "octavo", "uvicorn")]
    before = [(list(logger.handlers), logger.level, logger.propagate) for logger in loggers]
    yield module
    gc.enable()  # a start turns it off
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers[:] = handlers
        logger.setLevel(level)
        logger.propagate = propagate


def test_options_and_environment_reach_launch(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "k")
    launch.result = 7
    assert main(["serve", "m.gguf", "--port", "0", "--max-num-seqs", "3"]) == 7
    [(server_args, engine_args, env)] = launch.calls
    assert engine_args.model == "m.gguf"
    assert engine_args.max_num_seqs == 3
    assert server_args.port == 0
    assert env.api_key == "k"


def test_the_log_shows_the_options_without_secrets(
    launch: Launch, capsys: pytest.CaptureFixture[str]
) -> None:
    key, token = "sk-very-secret", "hf_very_secret"
    words = ["m.gguf", "--api-key", key, "--hf-token", token, "--root-path", f"/{key}"]
    assert main(["serve", *words]) == 0
    out = capsys.readouterr().out
    assert "(APIServer pid=" in out
    assert "non-default args: {'model': 'm.gguf', 'hf_token': '***', 'root_path': '/***'" in out
    assert key not in out
    assert token not in out


def test_warnings_of_all_sources_are_logged(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VLLM_NONSENSE", "1")
    assert main(["serve", "--model", "m", "--enforce-eager"]) == 0
    warnings = [line for line in capsys.readouterr().out.splitlines() if "WARNING" in line]
    assert len(warnings) == 3
    assert "--model is deprecated" in warnings[0]
    assert "--enforce-eager has no effect here" in warnings[1]
    assert "unknown environment variables are ignored: VLLM_NONSENSE" in warnings[2]


def test_a_failed_start_ends_with_one_sentence_and_its_exit_code(
    launch: Launch, capsys: pytest.CaptureFixture[str]
) -> None:
    launch.result = StartupError("port 8000 is in use")
    assert main(["serve"]) == 1
    captured = capsys.readouterr()
    assert captured.err == "octavo: error: port 8000 is in use\n"
    assert "Traceback" not in captured.out


def test_the_traceback_is_in_the_debug_log(
    launch: Launch, capsys: pytest.CaptureFixture[str]
) -> None:
    launch.result = StartupError("port 8000 is in use")
    assert main(["serve", "--log-level", "debug"]) == 1
    captured = capsys.readouterr()
    assert "Traceback (most recent call last)" in captured.out
    assert captured.err == "octavo: error: port 8000 is in use\n"


def test_unknown_variables_can_be_an_error(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OCTAVO_NONSENSE", "1")
    assert main(["serve", "--fail-on-environ-validation"]) == 2
    assert "unknown environment variables: OCTAVO_NONSENSE" in capsys.readouterr().err
    assert launch.calls == []


def test_logging_can_be_left_alone(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VLLM_CONFIGURE_LOGGING", "0")
    logging.getLogger("octavo").handlers.clear()
    assert main(["serve"]) == 0
    assert capsys.readouterr().out == ""
    assert logging.getLogger("octavo").handlers == []


def test_launch_is_not_imported_for_a_mistake(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> int:
        raise AssertionError("launched")

    monkeypatch.setattr(launch, "serve", fail)
    assert main(["serve", "--enable-lora"]) == 2
