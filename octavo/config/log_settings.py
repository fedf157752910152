"""How this process logs: flags, then environment, then defaults.

Runs in: the API process, which hands the settings on to its children.
Knows nothing of: handlers (`octavo/log.py`).
"""

from __future__ import annotations

from octavo.config.args import ServerArgs
from octavo.config.flags.nearest import did_you_mean
from octavo.config.flags.observability import LOG_LEVELS
from octavo.envs import Env
from octavo.errors import ConfigError
from octavo.log import LogSettings

FLAG = "--logging-config"
_KEYS = ("log_level", "formatter", "configure_logging", "pylogging_config_file")


def resolve_logging(args: ServerArgs, env: Env) -> LogSettings:
    """Settings of the log.

    Raises:
        ConfigError: `--logging-config` has an unknown key or a wrong value.
    """
    given = args.logging_config or {}
    for key in given:
        if key not in _KEYS:
            raise ConfigError(f"{FLAG} has no key {key!r}{did_you_mean(key, _KEYS)}")
    formatter = given.get("formatter", "text")
    if formatter not in ("text", "json"):
        raise ConfigError(f"{FLAG}.formatter must be text or json, got {formatter!r}")
    configured = given.get("configure_logging", env.configure_logging)
    if configured not in (True, False, 0, 1):
        raise ConfigError(f"{FLAG}.configure_logging must be true or false, got {configured!r}")
    file = given.get("pylogging_config_file")
    if file is not None and not isinstance(file, str):
        raise ConfigError(f"{FLAG}.pylogging_config_file must be a path, got {file!r}")
    return LogSettings(
        is_configured=bool(configured),
        level=args.log_level or _level(given.get("log_level")) or env.logging_level or "INFO",
        formatter=str(formatter),
        config_file=file or args.log_config_file or env.logging_config_path,
        stream=env.logging_stream,
        prefix=env.logging_prefix,
        colour=env.logging_color,
        no_color=env.no_color,
        force_color=env.force_color,
    )


def _level(value: object) -> str | None:
    if value is None:
        return None
    level = value.upper() if isinstance(value, str) else ""
    if level not in LOG_LEVELS:
        raise ConfigError(f"{FLAG}.log_level must be one of {', '.join(LOG_LEVELS)}, got {value!r}")
    return level
