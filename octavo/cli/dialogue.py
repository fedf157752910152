"""Question and answer on standard input and output: what `octavo chat` and `octavo complete` share.

In a terminal: a prompt with line editing and history; Ctrl-C ends the answer that is being printed,
or, at the prompt, the dialogue, as Ctrl-D does. In a pipe: one question per line, and nothing but
answers on standard output.

Runs in: the shell's process. Owns: the terminal. Knows nothing of: HTTP, messages.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from typing import Any

from octavo.cli.api_client import ApiClient
from octavo.cli.argument_parser import CommandParser
from octavo.envs import read_environ
from octavo.errors import CommandFailed

EXIT_INTERRUPTED = 130  # 128 + SIGINT

#: prints one answer to a question
Answer = Callable[[str], None]


def add_server_flags(parser: CommandParser, message: str) -> None:
    """vLLM's flags of both commands; `message` is the placeholder of `--quick`."""
    parser.add_argument(
        "--url", default="http://localhost:8000/v1", help="base URL of the server (%(default)s)"
    )
    parser.add_argument("--model-name", help="default: the first of the server's /models")
    parser.add_argument("--api-key", help="default: OPENAI_API_KEY")
    parser.add_argument("-q", "--quick", metavar=message, help="ask this one thing, then end")
    parser.add_argument("--stats", action="store_true", help="print the speed after each answer")


def connect(options: argparse.Namespace) -> tuple[ApiClient, str]:
    """The client that the flags describe, and the model's name.

    Raises:
        ConfigError: the URL is none.
        CommandFailed: the server does not say what models it has.
    """
    key = options.api_key or read_environ().openai_api_key or "EMPTY"
    client = ApiClient(options.url, key)
    model = options.model_name or client.first_model()
    note(f"Using model: {model}")
    return client, model


def note(text: str) -> None:
    """Says something that is no answer: on standard output only if that is a terminal."""
    print(text, file=sys.stdout if sys.stdout.isatty() else sys.stderr, flush=True)


def run_dialogue(quick: str | None, invitation: str, answer: Answer) -> int:
    """Answers `quick`, or every line of standard input; returns the exit code.

    Raises:
        CommandFailed: an answer failed, unless somebody at a terminal can ask again.
    """
    if quick is not None:
        return _answer_once(answer, quick)
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        import readline  # noqa: F401  input() edits lines and remembers them if it is there

        note(invitation)
    while True:
        try:
            question = input("> ") if is_terminal else _next_line()
        except EOFError:
            if is_terminal:
                print()
            return 0
        except KeyboardInterrupt:
            print()
            return 0 if is_terminal else EXIT_INTERRUPTED
        if not question.strip():
            continue
        if not is_terminal:
            if _answer_once(answer, question):
                return EXIT_INTERRUPTED
            continue
        try:
            answer(question)
        except KeyboardInterrupt:  # enough of this answer
            print()
        except CommandFailed as error:
            print(f"\noctavo: error: {error.message}", file=sys.stderr, flush=True)


def print_stream(
    events: Iterable[dict[str, Any]],
    pieces: Callable[[dict[str, Any]], Iterable[str]],
    *,
    stats: bool,
) -> None:
    """Prints the pieces of a streamed answer as they come, a line end, and how fast they came."""
    start_s = time.perf_counter()
    first_s: float | None = None
    num_tokens = 0
    for event in events:
        num_tokens = (event.get("usage") or {}).get("completion_tokens", num_tokens)
        for piece in pieces(event):
            if first_s is None:
                first_s = time.perf_counter() - start_s
            print(piece, end="", flush=True)
    print(flush=True)
    elapsed_s = time.perf_counter() - start_s
    if stats and first_s is not None:
        note(f"{'TTFT:':<5} {first_s * 1000:.2f} ms")
        note(
            f"{'TPS:':<5} {num_tokens / elapsed_s:.2f} tokens/s "
            f"({num_tokens} tokens in {elapsed_s:.2f}s)"
        )


def ask(
    client: ApiClient, path: str, body: dict[str, object], *, stats: bool
) -> AbstractContextManager[Iterator[dict[str, Any]]]:
    """The events of a streamed call, as a context: leaving it ends the request."""
    options = {"stream_options": {"include_usage": True}} if stats else {}
    return closing(client.stream(path, {**body, "stream": True, **options}))


def _answer_once(answer: Answer, question: str) -> int:
    try:
        answer(question)
    except KeyboardInterrupt:
        print()
        return EXIT_INTERRUPTED
    return 0


def _next_line() -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")
