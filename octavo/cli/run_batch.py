"""`octavo run-batch`: a file of OpenAI batch requests answered without a server, with vLLM's flags.

Runs in: the API process. Owns: the command's flags, the progress bar, and what happens to the
output when the batch is cut short. Knows nothing of: how a line is answered.
"""

from __future__ import annotations

import argparse
import logging
import sys

import msgspec
from tqdm import tqdm

from octavo import __version__
from octavo.cli.argument_parser import CommandParser
from octavo.cli.batch_files import BatchOutputFile, read_lines
from octavo.cli.engine_words import read_engine_words
from octavo.cli.serve_run import secrets_of
from octavo.config.args import EngineArgs, ServerArgs, non_default_args
from octavo.config.log_settings import resolve_logging
from octavo.envs import Env, read_environ
from octavo.errors import CommandFailed, ConfigError, StartupError
from octavo.log import LogSettings, configure_logging
from octavo.transport.process_name import hide_in_command_line, name_thread
from octavo.transport.start_signals import StartSignals

PROCESS_NAME = "RunBatch"
DEFAULT_STREAM = "ext://sys.stdout"

#: options of the HTTP server that mean nothing without one; vLLM's command does not have them
SERVER_ONLY = (
    "uds", "root_path", "api_key", "api_key_guards_metrics", "allowed_origins",
    "allow_credentials", "allowed_methods", "allowed_headers", "ssl_keyfile", "ssl_certfile",
    "ssl_ca_certs", "ssl_cert_reqs", "middleware", "enable_request_id_headers",
    "disable_fastapi_docs", "uvicorn_log_level", "disable_uvicorn_access_log",
    "disable_access_log_for_endpoints", "shutdown_timeout",
)  # fmt: skip

#: whole lines for logs; a bar is for terminals
_LINE_FORMAT = (
    "{desc}: {percentage:3.0f}% Completed | {n_fmt}/{total_fmt} "
    "[{elapsed}<{remaining}, {rate_fmt}]\n"
)

logger = logging.getLogger(__name__)


def run_batch(words: list[str]) -> int:
    """Runs `octavo run-batch WORDS`; returns the exit code: 0 also if lines failed, since each has
    its own answer.

    Raises:
        ConfigError: flags do not fit, or the input cannot be read.
        StartupError: the engine cannot be started.
        CommandFailed: the batch was cut short, or its output cannot be written.
    """
    options, rest = make_parser().read_known(words)
    engine_args, server_args = read_engine_words(rest)
    if options.url is not None and server_args.host is None:
        server_args.host = options.url
    _refuse_server_flags(server_args)
    signals = StartSignals()
    env = read_environ()
    log = _begin_log(engine_args, server_args, env)
    lines = read_lines(options.input_file)
    if not lines:
        raise ConfigError(f"--input-file {options.input_file} holds no request")
    output = BatchOutputFile(options.output_file, options.output_tmp_dir)
    logger.info("Reading batch from %s: %d requests.", options.input_file, len(lines))
    try:
        return _answer(options, engine_args, server_args, env, log, signals, lines, output)
    except (StartupError, CommandFailed) as error:
        exit_code = error.exit_code
        if output.num_lines:
            left = output.give_up()
            raise CommandFailed(f"{error.message}; {left}", exit_code=exit_code) from None
        output.give_up()
        raise


def _answer(
    options: argparse.Namespace,
    engine_args: EngineArgs,
    server_args: ServerArgs,
    env: Env,
    log: LogSettings,
    signals: StartSignals,
    lines: list[bytes],
    output: BatchOutputFile,
) -> int:
    from octavo.launch.batch import run_batch as answer_lines  # the engine: flags are known good

    is_terminal = sys.stderr.isatty()
    with tqdm(
        total=len(lines),
        unit="req",
        desc="Running batch",
        mininterval=0.1 if is_terminal else 5,
        bar_format=None if is_terminal else _LINE_FORMAT,
    ) as bar:

        def advance() -> None:
            bar.update()

        counts = answer_lines(
            server_args,
            engine_args,
            env,
            log,
            signals,
            lines,
            output.write,
            has_metrics=options.enable_metrics,
            on_done=advance,
        )
    output.finish()
    logger.info(
        "%d requests are answered, %d have an error; see %s.",
        counts.answered,
        counts.failed,
        options.output_file,
    )
    return 0


def make_parser() -> CommandParser:
    """The parser of the command's own words."""
    parser = CommandParser(
        "octavo run-batch",
        "Answer a file of OpenAI batch requests without a server.",
        epilog="--model MODEL and every flag of the engine (octavo serve --help) are taken, too.",
    )
    parser.add_argument(
        "-i", "--input-file", required=True, help="JSON lines: a path or an http(s) URL"
    )
    parser.add_argument(
        "-o", "--output-file", required=True, help="a path, or an http(s) URL that takes PUT"
    )
    parser.add_argument("--output-tmp-dir", help="where the lines wait for the upload to a URL")
    parser.add_argument(
        "--enable-metrics", action="store_true", help="show /metrics on --host and --port (8000)"
    )
    parser.add_argument("--url", help="older name of --host")
    return parser


def _refuse_server_flags(args: ServerArgs) -> None:
    for name in SERVER_ONLY:
        if name in non_default_args(args):
            raise ConfigError(
                f"--{name.replace('_', '-')} is for octavo serve; octavo run-batch has no server"
            )


def _begin_log(engine_args: EngineArgs, server_args: ServerArgs, env: Env) -> LogSettings:
    """The log goes to standard error, unless the environment names a place: standard output may be
    the output file."""
    secrets = secrets_of(engine_args, server_args, env)
    hide_in_command_line(secrets)
    name_thread(f"Octavo::{PROCESS_NAME}")
    settings = resolve_logging(server_args, env)
    if settings.stream == DEFAULT_STREAM:
        settings = msgspec.structs.replace(settings, stream="ext://sys.stderr")
    configure_logging(settings, process_name=PROCESS_NAME, secrets=secrets)
    logger.info("Octavo version %s", __version__)
    logger.info("non-default args: %s", non_default_args(engine_args, server_args))
    for warning in (*engine_args.warnings, *env.warnings):
        logger.warning("%s", warning)
    return settings
