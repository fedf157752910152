"""The state machine between engine outputs and what a client sees of them.

    text -> ReplyParser -> reasoning / content / tool calls -> events

`ChoiceAssembler` takes the outputs of one choice and gives events. A stream sends the events one
by one; a whole reply is their sum (`WholeChoice`). There is no second path. Without a parser all
text is content.

Neighbours: `octavo/api/parsing` (parsers), `octavo/api/openai/chat_reply.py` (a wire format).
Runs in: API process. Owns: what a choice has said so far. Knows nothing of: wire formats, HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from octavo.api.parsing.pieces import Content, Piece, Reasoning, ReplyParser, ToolCallStart
from octavo.api.text_input import TextInput
from octavo.outputs import CompletionOutput, PositionLogprobs


class ContentDelta(msgspec.Struct, gc=False):
    """New text for the user and the tokens it came from. Text may be empty while a character or a
    stop string is incomplete."""

    text: str
    token_ids: list[int]
    logprobs: Sequence[PositionLogprobs] | None = None


class ReasoningDelta(msgspec.Struct, gc=False):
    """New text of the reasoning."""

    text: str
    token_ids: list[int]
    logprobs: Sequence[PositionLogprobs] | None = None


class ToolCallDelta(msgspec.Struct, gc=False):
    """A tool call begins (with `name` and `id`), or its arguments go on. `is_text`: of a tool whose
    input is a text, which stands for the arguments."""

    index: int
    arguments: str
    name: str | None
    id: str | None
    token_ids: list[int]
    logprobs: Sequence[PositionLogprobs] | None = None
    is_text: bool = False


class Finish(msgspec.Struct, gc=False):
    """The choice has ended; the last event, exactly once."""

    reason: str
    stop_reason: int | str | None = None


#: the tokens of an output are in its first delta
Delta = ContentDelta | ReasoningDelta | ToolCallDelta
Event = Delta | Finish


class TokenCounter(Protocol):
    """Counts some of the tokens of a choice."""

    num_tokens: int

    def see(self, token_ids: Sequence[int]) -> None:
        """Takes the next tokens."""


class Parsing(msgspec.Struct, frozen=True):
    """How the text of a choice is read.

    Attributes:
        parser: of this choice alone.
        make_id: names a tool call that has no id of its own.
        max_tool_calls: what is called beyond them is dropped; None: all calls are kept.
        tool_finish_reason: stands for `stop` after a call.
        reasoning_tokens: counts them; None: nobody asks.
        on_end: called when the choice has ended, with whether it called a tool.
        text_tools: names of the tools whose input is a text, and of the argument that it is in.
    """

    parser: ReplyParser
    make_id: Callable[[], str]
    max_tool_calls: int | None = None
    tool_finish_reason: str = "tool_calls"
    reasoning_tokens: TokenCounter | None = None
    on_end: Callable[[bool], None] | None = None
    text_tools: Mapping[str, str] = {}


class ChoiceAssembler:
    """Events of one choice.

    Args:
        parsing: how the text is read; None: all of it is content.
    """

    __slots__ = ("_parsing", "_text_inputs", "has_called", "is_finished", "num_tokens")

    def __init__(self, parsing: Parsing | None = None) -> None:
        self._parsing = parsing
        self._text_inputs: dict[int, TextInput] = {}  # by the call's index
        self.has_called = False
        self.num_tokens = 0
        self.is_finished = False

    @property
    def num_reasoning_tokens(self) -> int:
        """Tokens so far that are reasoning."""
        counter = None if self._parsing is None else self._parsing.reasoning_tokens
        return 0 if counter is None else counter.num_tokens

    def push(self, output: CompletionOutput) -> list[Event]:
        """Takes what is new in a choice; gives the events in order."""
        assert not self.is_finished, "output after the end of a choice"
        events: list[Event] = []
        self.num_tokens += len(output.token_ids)
        if self._parsing is not None:
            events += self._parsed(self._parsing, output)
        elif output.text or output.token_ids:
            events.append(ContentDelta(output.text, output.token_ids, output.logprobs))
        if output.finish_reason is not None:
            self.is_finished = True
            reason = output.finish_reason
            if self._parsing is not None:
                if self._parsing.on_end is not None:
                    self._parsing.on_end(self.has_called)
                if reason == "stop" and self.has_called:
                    reason = self._parsing.tool_finish_reason
            events.append(Finish(reason, output.stop_reason))
        return events

    def _parsed(self, parsing: Parsing, output: CompletionOutput) -> list[Delta]:
        """The deltas of an output, the first of which has its tokens."""
        if parsing.reasoning_tokens is not None:
            parsing.reasoning_tokens.see(output.token_ids)
        pieces = parsing.parser.feed(output.text) if output.text else []
        if output.finish_reason is not None:
            pieces = [*pieces, *parsing.parser.finish()]
        deltas = [delta for piece in pieces if (delta := self._delta(parsing, piece)) is not None]
        if output.finish_reason is not None:
            deltas += self._ends_of_texts()
        if output.token_ids:
            if not deltas:
                deltas.append(ContentDelta("", []))
            deltas[0].token_ids, deltas[0].logprobs = output.token_ids, output.logprobs
        return deltas

    def _delta(self, parsing: Parsing, piece: Piece) -> Delta | None:
        """None for a call too many."""
        if isinstance(piece, Content):
            return ContentDelta(piece.text, [])
        if isinstance(piece, Reasoning):
            return ReasoningDelta(piece.text, [])
        if parsing.max_tool_calls is not None and piece.index >= parsing.max_tool_calls:
            return None
        self.has_called = True
        if isinstance(piece, ToolCallStart):
            argument = parsing.text_tools.get(piece.name)
            if argument is not None:
                self._text_inputs[piece.index] = TextInput(argument)
            call_id = piece.id or parsing.make_id()
            is_text = argument is not None
            return ToolCallDelta(piece.index, "", piece.name, call_id, [], is_text=is_text)
        text_input = self._text_inputs.get(piece.index)
        if text_input is None:
            return ToolCallDelta(piece.index, piece.text, None, None, [])
        text = text_input.feed(piece.text)
        return ToolCallDelta(piece.index, text, None, None, [], is_text=True) if text else None

    def _ends_of_texts(self) -> list[Delta]:
        """What was held back of inputs, now that nothing comes any more."""
        texts = [(index, text.finish()) for index, text in self._text_inputs.items()]
        return [ToolCallDelta(i, text, None, None, [], is_text=True) for i, text in texts if text]


class WholeCall:
    """The sum of one tool call's deltas. `is_text`: as in `ToolCallDelta`."""

    __slots__ = ("_arguments", "id", "is_text", "name")

    def __init__(self, name: str, id: str, is_text: bool) -> None:
        self.name = name
        self.id = id
        self.is_text = is_text
        self._arguments: list[str] = []

    @property
    def arguments(self) -> str:
        """All arguments so far."""
        return "".join(self._arguments)

    def add(self, arguments: str) -> None:
        """Takes the next characters."""
        self._arguments.append(arguments)


class WholeChoice:
    """The sum of one choice's events."""

    __slots__ = (
        "_reasoning",
        "_texts",
        "finish_reason",
        "logprobs",
        "stop_reason",
        "token_ids",
        "tool_calls",
    )

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self.tool_calls: list[WholeCall] = []
        self.token_ids: list[int] = []
        self.logprobs: list[PositionLogprobs] = []
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None

    @property
    def text(self) -> str:
        """All content so far."""
        return "".join(self._texts)

    @property
    def reasoning(self) -> str:
        """All reasoning so far."""
        return "".join(self._reasoning)

    def add(self, event: Event) -> None:
        """Takes the next event."""
        if isinstance(event, Finish):
            self.finish_reason = event.reason
            self.stop_reason = event.stop_reason
            return
        self.token_ids += event.token_ids
        self.logprobs += event.logprobs or ()
        if isinstance(event, ContentDelta):
            self._texts.append(event.text)
        elif isinstance(event, ReasoningDelta):
            self._reasoning.append(event.text)
        elif event.name is not None:
            assert event.id is not None
            assert event.index == len(self.tool_calls), "calls begin in order"
            self.tool_calls.append(WholeCall(event.name, event.id, event.is_text))
        else:
            self.tool_calls[event.index].add(event.arguments)
