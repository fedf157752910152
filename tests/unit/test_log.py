"""The format of log lines."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.errors import ConfigError
from octavo.log import JsonFormatter, LogSettings, TextFormatter, configure_logging, wants_colour

LINE = re.compile(
    r"\(APIServer pid=(\d+)\) (\w+) \d\d-\d\d \d\d:\d\d:\d\d \[(\w+\.py):(\d+)\] (.*)"
)


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    names = ("", "octavo", "uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi")
    before = {
        name: (list(logger.handlers), logger.level, logger.propagate)
        for name in names
        for logger in [logging.getLogger(name)]
    }
    yield
    for name, (handlers, level, propagate) in before.items():
        logger = logging.getLogger(name)
        for handler in logger.handlers:
            if handler not in handlers:
                handler.close()
        logger.handlers[:] = handlers
        logger.setLevel(level)
        logger.propagate = propagate


def record(message: str, *args: object, level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord("octavo.x", level, "/a/launch.py", 88, message, args, None)


def test_a_line_has_vllms_parts() -> None:
    match = LINE.fullmatch(TextFormatter(process_name="APIServer").format(record("hello %d", 3)))
    assert match is not None
    assert match.groups() == (str(os.getpid()), "INFO", "launch.py", "88", "hello 3")


def test_every_line_of_a_message_has_the_front_part() -> None:
    lines = TextFormatter(process_name="APIServer").format(record("a\nb")).split("\n")
    assert [LINE.fullmatch(line).group(5) for line in lines] == ["a", "b"]  # type: ignore[union-attr]


def test_tracebacks_follow_the_message() -> None:
    try:
        raise ValueError("boom")
    except ValueError:
        rec = logging.LogRecord("o", logging.ERROR, "/a.py", 1, "it failed", (), sys.exc_info())
    text = TextFormatter(process_name="APIServer").format(rec)
    assert all(LINE.fullmatch(line) for line in text.split("\n"))
    assert text.split("\n")[0].endswith("it failed")
    assert text.endswith("ValueError: boom")


def test_secrets_are_replaced_wherever_they_come_from() -> None:
    formatter = TextFormatter(process_name="APIServer", secrets=["sk-abcdef", "k"])
    assert formatter.format(record("key %s", "sk-abcdef")).endswith("] key ***")
    as_json = JsonFormatter(process_name="APIServer", secrets=["sk-abcdef"])
    assert "sk-abcdef" not in as_json.format(record("key sk-abcdef"))


def test_colour_is_on_the_level_and_the_process_only() -> None:
    text = TextFormatter(process_name="APIServer", is_coloured=True).format(record("x"))
    assert text.startswith("\033[36m(APIServer pid=")
    assert "\033[32mINFO\033[0m" in text
    assert text.endswith("[launch.py:88] x")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_unless_told_otherwise() -> None:
    pipe, terminal = io.StringIO(), Terminal()
    assert not wants_colour(pipe)
    assert wants_colour(terminal)
    assert not wants_colour(terminal, no_color=True)
    assert wants_colour(pipe, force_color=True)
    assert not wants_colour(pipe, force_color=True, no_color=True)
    assert wants_colour(pipe, "1", no_color=True)
    assert not wants_colour(terminal, "0", force_color=True)


def test_json_has_one_object_per_record() -> None:
    text = JsonFormatter(process_name="EngineCore").format(record("a\nb", level=logging.WARNING))
    assert "\n" not in text
    parsed = json.loads(text)
    assert parsed["level"] == "WARNING"
    assert parsed["process"] == "EngineCore"
    assert parsed["message"] == "a\nb"
    assert (parsed["file"], parsed["line"], parsed["pid"]) == ("launch.py", 88, os.getpid())


def test_octavo_and_uvicorn_go_through_the_same_handler(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    configure_logging(LogSettings(stream=str(path)), process_name="APIServer")
    logging.getLogger("octavo.api").info("one")
    logging.getLogger("octavo.api").debug("not this")
    logging.getLogger("uvicorn.error").warning("two")
    lines = path.read_text().splitlines()
    assert [LINE.fullmatch(line).group(5) for line in lines] == ["one", "two"]  # type: ignore[union-attr]


def test_warnings_of_other_libraries_have_the_format_and_hide_secrets(tmp_path: Path) -> None:
    for _ in range(2):  # a second call adds no second handler
        settings = LogSettings(stream=str(tmp_path / "log"))
        configure_logging(settings, process_name="APIServer", secrets=["hf_abcdef"])
    other = logging.getLogger("some.library")
    other.warning("no luck with %s", "hf_abcdef")
    other.info("chatter")
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert LINE.fullmatch(line).group(5) == "no luck with ***"  # type: ignore[union-attr]


def test_a_second_call_replaces_the_first(tmp_path: Path) -> None:
    for name in ("a", "b"):
        configure_logging(
            LogSettings(stream=str(tmp_path / name), level="DEBUG"), process_name="APIServer"
        )
    logging.getLogger("octavo").debug("x")
    assert (tmp_path / "a").read_text() == ""
    assert len((tmp_path / "b").read_text().splitlines()) == 1


def test_logging_may_be_left_alone(tmp_path: Path) -> None:
    before = list(logging.getLogger("octavo").handlers)
    settings = LogSettings(is_configured=False, stream=str(tmp_path / "log"))
    configure_logging(settings, process_name="APIServer")
    assert logging.getLogger("octavo").handlers == before
    assert not (tmp_path / "log").exists()


def test_stdout_and_stderr_are_named_as_logging_names_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging(LogSettings(stream="ext://sys.stderr"), process_name="APIServer")
    logging.getLogger("octavo").info("x")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert LINE.fullmatch(captured.err.strip())


def test_a_stream_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"OCTAVO_LOGGING_STREAM must be .* No such file"):
        configure_logging(LogSettings(stream=str(tmp_path / "none" / "log")), process_name="x")


def test_a_configuration_file_replaces_everything(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    path = tmp_path / "c.json"
    path.write_text(
        json.dumps(
            {
                "version": 1,
                "disable_existing_loggers": False,
                "formatters": {"f": {"format": "MINE %(message)s"}},
                "handlers": {
                    "h": {
                        "class": "logging.FileHandler",
                        "filename": str(log),
                        "formatter": "f",
                        "delay": False,
                    }
                },
                "loggers": {"octavo": {"handlers": ["h"], "level": "INFO", "propagate": False}},
            }
        )
    )
    configure_logging(LogSettings(config_file=str(path)), process_name="x")
    logging.getLogger("octavo").info("hello")
    assert log.read_text() == "MINE hello\n"


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 9}', None])
def test_a_configuration_file_that_is_not_usable_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "c.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=r"logging configuration .*c\.json"):
        configure_logging(LogSettings(config_file=str(path)), process_name="x")
