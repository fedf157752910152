"""`octavo chat`: a conversation with a running server, with vLLM's flags.

Runs in: the shell's process. Owns: the conversation. Knows nothing of: terminals, HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from octavo.cli.api_client import ApiClient
from octavo.cli.argument_parser import CommandParser
from octavo.cli.dialogue import add_server_flags, ask, connect, print_stream, run_dialogue

INVITATION = "Please enter a message for the chat model:"


def chat(words: list[str]) -> int:
    """Runs `octavo chat WORDS`; returns the exit code.

    Raises:
        ConfigError: a flag does not fit.
        CommandFailed: the server cannot be reached, or refuses.
    """
    options = make_parser().read(words)
    client, model = connect(options)
    conversation = Conversation(client, model, options.system_prompt, stats=options.stats)
    return run_dialogue(options.quick, INVITATION, conversation.answer)


def make_parser() -> CommandParser:
    """The parser of the command's words."""
    parser = CommandParser("octavo chat", "Talk to a running server.")
    add_server_flags(parser, "MESSAGE")
    parser.add_argument("--system-prompt", help="the first message, of the role system")
    return parser


class Conversation:
    """Messages so far, and the next answer."""

    def __init__(
        self, client: ApiClient, model: str, system_prompt: str | None, *, stats: bool
    ) -> None:
        self._client = client
        self._model = model
        self._stats = stats
        self.messages: list[dict[str, str]] = []
        if system_prompt is not None:
            self.messages.append({"role": "system", "content": system_prompt})

    def answer(self, message: str) -> None:
        """Prints the answer to a message. What came of it before an interrupt or an error stays in
        the conversation; a message without any answer does not.

        Raises:
            CommandFailed: the server refused, or the stream failed.
        """
        self.messages.append({"role": "user", "content": message})
        reply = _Reply()
        body: dict[str, object] = {"model": self._model, "messages": self.messages}
        try:
            with ask(self._client, "/chat/completions", body, stats=self._stats) as events:
                print_stream(reply.with_end(events), reply.pieces, stats=self._stats)
        finally:
            if reply.content:
                self.messages.append({"role": "assistant", "content": reply.content})
            else:
                self.messages.pop()


class _Reply:
    """Deltas to printed pieces: reasoning stands between `<think>` lines."""

    def __init__(self) -> None:
        self.content = ""
        self._is_reasoning = False

    def with_end(self, events: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The events, and one that closes reasoning which nothing followed."""
        yield from events
        if self._is_reasoning:
            yield {"choices": [{"delta": {"content": ""}}]}

    def pieces(self, event: dict[str, Any]) -> Iterator[str]:
        """What to print of an event."""
        for choice in event.get("choices", ()):
            delta = choice.get("delta") or {}
            reasoning = delta.get("reasoning") or delta.get("reasoning_content")
            content = delta.get("content")
            if reasoning:
                if not self._is_reasoning:
                    self._is_reasoning = True
                    yield "<think>\n"
                yield reasoning
            elif content is not None and self._is_reasoning:
                self._is_reasoning = False
                yield "\n</think>\n"
            if content:
                self.content += content
                yield content
