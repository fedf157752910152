"""The part of `octavo serve` that is past the command line: options, environment, log, launch.

Runs in: the API process. Knows nothing of: argv, what is started (octavo/launch).
"""

from __future__ import annotations

import logging
import traceback

from octavo import __version__
from octavo.config.args import EngineArgs, ServerArgs, non_default_args, split_options
from octavo.config.log_settings import resolve_logging
from octavo.config.parser import ParsedArgs
from octavo.config.rules.access import choose_api_keys
from octavo.envs import Env, check_unknown, read_environ
from octavo.errors import StartupError
from octavo.log import configure_logging
from octavo.transport.process_name import hide_in_command_line, name_thread
from octavo.transport.start_signals import StartSignals

PROCESS_NAME = "APIServer"

logger = logging.getLogger(__name__)


def run(parsed: ParsedArgs, signals: StartSignals) -> int:
    """Starts the server that `parsed` describes; returns its exit code.

    Raises:
        StartupError: the options cannot be honoured or the start fails.
    """
    engine_args, server_args = split_options(parsed.options)
    env = read_environ()
    if server_args.fail_on_environ_validation:
        check_unknown(env)
    secrets = secrets_of(engine_args, server_args, env)
    hide_in_command_line(secrets)
    name_thread(f"Octavo::{PROCESS_NAME}")
    configure_logging(resolve_logging(server_args, env), process_name=PROCESS_NAME, secrets=secrets)
    _say_what_was_asked(parsed, engine_args, server_args, env)

    from octavo.launch.serve import serve  # the whole program: only once the options are known good

    try:
        return serve(server_args, engine_args, env, signals)
    except StartupError:
        logger.debug("start failed:\n%s", traceback.format_exc())
        raise


def secrets_of(engine_args: EngineArgs, server_args: ServerArgs, env: Env) -> list[str]:
    """Texts that must not appear in the log and in the list of processes."""
    tokens = [engine_args.hf_token, env.hf_token]
    keys = choose_api_keys(server_args.api_key, env.api_key)
    return [*keys, *(token for token in tokens if isinstance(token, str))]


def _say_what_was_asked(
    parsed: ParsedArgs, engine_args: EngineArgs, server_args: ServerArgs, env: Env
) -> None:
    logger.info("Octavo version %s", __version__)
    logger.info("non-default args: %s", non_default_args(engine_args, server_args))
    for warning in (
        *parsed.warnings,
        *server_args.warnings,
        *engine_args.warnings,
        *env.warnings,
    ):
        logger.warning("%s", warning)
