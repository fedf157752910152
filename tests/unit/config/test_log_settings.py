"""Settings of the log by flags and environment."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.config.args import ServerArgs
from octavo.config.log_settings import resolve_logging
from octavo.envs import read_environ
from octavo.errors import ConfigError
from octavo.log import LogSettings


def resolve(environ: dict[str, str] | None = None, **options: Any) -> LogSettings:
    return resolve_logging(ServerArgs(**options), read_environ(environ or {}))


def test_the_default_is_info_text_on_stdout() -> None:
    assert resolve() == LogSettings(level="INFO", formatter="text", stream="ext://sys.stdout")


def test_the_level_comes_from_flag_then_config_then_environment() -> None:
    environ = {"VLLM_LOGGING_LEVEL": "error"}
    assert resolve(environ).level == "ERROR"
    assert resolve(environ, logging_config={"log_level": "warning"}).level == "WARNING"
    both = resolve(environ, logging_config={"log_level": "warning"}, log_level="debug")
    assert both.level == "DEBUG"


def test_the_file_comes_from_config_then_flag_then_environment() -> None:
    environ = {"VLLM_LOGGING_CONFIG_PATH": "e.json"}
    assert resolve(environ).config_file == "e.json"
    assert resolve(environ, log_config_file="f.json").config_file == "f.json"
    given = {"pylogging_config_file": "c.json"}
    assert resolve(environ, log_config_file="f.json", logging_config=given).config_file == "c.json"


def test_logging_may_be_left_alone() -> None:
    assert not resolve({"OCTAVO_CONFIGURE_LOGGING": "0"}).is_configured
    assert not resolve(logging_config={"configure_logging": False}).is_configured
    assert resolve(
        {"VLLM_CONFIGURE_LOGGING": "0"}, logging_config={"configure_logging": True}
    ).is_configured


def test_json_and_colours_are_taken_over() -> None:
    settings = resolve(
        {"NO_COLOR": "1", "VLLM_LOGGING_COLOR": "1", "VLLM_LOGGING_PREFIX": "x "},
        logging_config={"formatter": "json"},
    )
    assert settings.formatter == "json"
    assert (settings.no_color, settings.colour, settings.prefix) == (True, "1", "x ")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"level": "DEBUG"}, "has no key 'level'; did you mean log_level"),
        ({"log_level": "loud"}, "log_level must be one of DEBUG, INFO"),
        ({"log_level": 10}, "log_level must be one of"),
        ({"formatter": "xml"}, "formatter must be text or json, got 'xml'"),
        ({"configure_logging": "no"}, "configure_logging must be true or false"),
        ({"pylogging_config_file": 3}, "pylogging_config_file must be a path"),
    ],
)
def test_mistakes_are_explained(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        resolve(logging_config=given)
