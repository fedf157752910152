"""How log lines look and where they go: vLLM's format, set up once per process.

    (APIServer pid=42) INFO 07-01 12:00:00 [launch.py:88] message

Modules log with `logging.getLogger(__name__)`; only `configure_logging` touches handlers. Colour
appears on terminals alone. Known secrets are replaced in every line, whoever logs them: warnings of
other libraries (asyncio, huggingface_hub) go through the root logger to the same handler.

Runs in: every process. Owns: the handler of the `octavo`, `uvicorn` and root loggers.
Knows nothing of: flags, environment (`octavo/config/log_settings.py` says what they ask for).
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO

import msgspec

from octavo.errors import ConfigError

LOGGERS = ("octavo", "uvicorn")
#: uvicorn's own, which would otherwise bring their own handlers
_UVICORN_CHILDREN = ("uvicorn.error", "uvicorn.access", "uvicorn.asgi")

DATE_FORMAT = "%m-%d %H:%M:%S"
_HIDDEN = "***"
_MIN_SECRET_LENGTH = 6  # shorter ones would blank ordinary words out

_COLOURS = {
    logging.DEBUG: "\033[37m",
    logging.INFO: "\033[32m",
    logging.WARNING: "\033[33m",
    logging.ERROR: "\033[31m",
    logging.CRITICAL: "\033[35m",
}
_PROCESS_COLOUR = "\033[36m"
_RESET = "\033[0m"


class TextFormatter(logging.Formatter):
    """vLLM's line; further lines of a message repeat the front part so that grep finds them."""

    def __init__(
        self,
        *,
        process_name: str,
        prefix: str = "",
        is_coloured: bool = False,
        secrets: Iterable[str] = (),
    ) -> None:
        super().__init__(datefmt=DATE_FORMAT)
        process = f"({process_name} pid={os.getpid()})"
        self._process = f"{_PROCESS_COLOUR}{process}{_RESET}" if is_coloured else process
        self._prefix = prefix
        self._is_coloured = is_coloured
        self._secrets = _worth_hiding(secrets)

    def format(self, record: logging.LogRecord) -> str:
        """One record as one or more lines without the last newline."""
        level = record.levelname
        if self._is_coloured:
            level = f"{_COLOURS.get(record.levelno, '')}{level}{_RESET}"
        front = (
            f"{self._process} {self._prefix}{level} {self.formatTime(record, DATE_FORMAT)} "
            f"[{record.filename}:{record.lineno}]"
        )
        text = _hide(_full_message(self, record), self._secrets)
        return "\n".join(f"{front} {line}" for line in text.splitlines() or [""])


class JsonFormatter(logging.Formatter):
    """One JSON object per record (`--logging-config.formatter json`)."""

    def __init__(self, *, process_name: str, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._process_name = process_name
        self._secrets = _worth_hiding(secrets)

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line."""
        return json.dumps(
            {
                "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
                "level": record.levelname,
                "process": self._process_name,
                "pid": record.process,
                "logger": record.name,
                "file": record.filename,
                "line": record.lineno,
                "message": _hide(_full_message(self, record), self._secrets),
            },
            ensure_ascii=False,
        )


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the processes of a server log; all get the same."""

    is_configured: bool = True  # False: logging is left alone
    level: str = "INFO"  # of the octavo loggers; uvicorn's has a flag of its own
    formatter: str = "text"  # text, json
    stream: str = "ext://sys.stdout"  # ext://sys.stdout, ext://sys.stderr, or a file's path
    prefix: str = ""
    colour: str = "auto"  # auto (on terminals), 0 or 1
    no_color: bool = False
    force_color: bool = False
    #: JSON for `logging.config.dictConfig`; then nothing else here applies
    config_file: str | None = None


def configure_logging(
    settings: LogSettings, *, process_name: str, secrets: Iterable[str] = ()
) -> None:
    """Sets up the loggers of this process; may be called again.

    Args:
        settings: what the flags and the environment ask for.
        process_name: shown in front of every line: APIServer, EngineCore, ...
        secrets: texts that must not appear in any line.

    Raises:
        ConfigError: the configuration file or the stream cannot be used.
    """
    if not settings.is_configured:
        return
    if settings.config_file:
        _from_file(settings.config_file)
        return
    handler = _handler(settings.stream)
    handler.setFormatter(_formatter(settings, handler.stream, process_name, secrets))
    for name in LOGGERS:
        logger = logging.getLogger(name)
        for old in logger.handlers:
            if isinstance(old, logging.FileHandler):
                old.close()
        logger.handlers[:] = [handler]
        logger.propagate = False
    root = logging.getLogger()
    # one of ours from an earlier call goes, others stay
    root.handlers[:] = [*(old for old in root.handlers if not _is_ours(old)), handler]
    logging.getLogger("octavo").setLevel(settings.level)
    for name in _UVICORN_CHILDREN:
        child = logging.getLogger(name)
        child.handlers.clear()
        child.propagate = True


def wants_colour(
    stream: TextIO, colour: str = "auto", *, no_color: bool = False, force_color: bool = False
) -> bool:
    """Whether lines on `stream` are coloured: an explicit 0 or 1 first, then NO_COLOR, then
    FORCE_COLOR, then whether it is a terminal."""
    if colour in ("0", "1"):
        return colour == "1"
    if no_color:
        return False
    return force_color or stream.isatty()


def _is_ours(handler: logging.Handler) -> bool:
    return isinstance(handler.formatter, (TextFormatter, JsonFormatter))


def _formatter(
    settings: LogSettings, stream: TextIO, process_name: str, secrets: Iterable[str]
) -> logging.Formatter:
    if settings.formatter == "json":
        return JsonFormatter(process_name=process_name, secrets=secrets)
    return TextFormatter(
        process_name=process_name,
        prefix=settings.prefix,
        is_coloured=wants_colour(
            stream,
            settings.colour,
            no_color=settings.no_color,
            force_color=settings.force_color,
        ),
        secrets=secrets,
    )


def _full_message(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The message with the traceback below it, as `logging.Formatter.format` puts them."""
    text = record.getMessage()
    if record.exc_info:
        text = f"{text}\n{formatter.formatException(record.exc_info)}"
    if record.stack_info:
        text = f"{text}\n{formatter.formatStack(record.stack_info)}"
    return text


def _worth_hiding(secrets: Iterable[str]) -> tuple[str, ...]:
    return tuple(secret for secret in secrets if len(secret) >= _MIN_SECRET_LENGTH)


def _hide(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return text


def _handler(stream: str) -> logging.StreamHandler[Any]:
    if stream == "ext://sys.stdout":
        return logging.StreamHandler(sys.stdout)
    if stream == "ext://sys.stderr":
        return logging.StreamHandler(sys.stderr)
    try:
        return logging.FileHandler(stream, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"OCTAVO_LOGGING_STREAM must be ext://sys.stdout, ext://sys.stderr or a file that can "
            f"be written, got {stream!r}: {error.strerror}"
        ) from None


def _from_file(path: str) -> None:
    import logging.config  # 15 ms; only with a configuration file

    try:
        with open(path, encoding="utf-8") as file:
            logging.config.dictConfig(json.load(file))
    except OSError as error:
        raise ConfigError(f"logging configuration {path}: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError, ImportError, KeyError) as error:
        raise ConfigError(f"logging configuration {path} is not usable: {error}") from None
