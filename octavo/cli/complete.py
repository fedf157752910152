"""`octavo complete`: texts continued by a running server, with vLLM's flags.

Runs in: the shell's process. Knows nothing of: terminals, HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from octavo.cli.argument_parser import CommandParser
from octavo.cli.dialogue import add_server_flags, ask, connect, print_stream, run_dialogue

INVITATION = "Please enter prompt to complete:"


def complete(words: list[str]) -> int:
    """Runs `octavo complete WORDS`; returns the exit code.

    Raises:
        ConfigError: a flag does not fit.
        CommandFailed: the server cannot be reached, or refuses.
    """
    options = make_parser().read(words)
    client, model = connect(options)
    fields: dict[str, object] = {"model": model}
    if options.max_tokens is not None:
        fields["max_tokens"] = options.max_tokens

    def answer(prompt: str) -> None:
        body = {**fields, "prompt": prompt}
        with ask(client, "/completions", body, stats=options.stats) as events:
            print_stream(events, _pieces, stats=options.stats)

    return run_dialogue(options.quick, INVITATION, answer)


def make_parser() -> CommandParser:
    """The parser of the command's words."""
    parser = CommandParser("octavo complete", "Let a running server continue texts.")
    add_server_flags(parser, "PROMPT")
    parser.add_argument("--max-tokens", type=int, help="most tokens of a continuation")
    return parser


def _pieces(event: dict[str, Any]) -> Iterator[str]:
    for choice in event.get("choices", ()):
        if text := choice.get("text"):
            yield text
