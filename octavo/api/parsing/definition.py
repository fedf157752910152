"""What a model's replies look like: `ToolFormat` and `ReasoningFormat`, tables without behaviour.

Runs in: API process. Owns: what a definition may say. Knows nothing of: requests, texts.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import msgspec

from octavo.api.parsing.call_parts import CallPart
from octavo.api.parsing.marks import MarkSet
from octavo.api.parsing.pieces import ReplyParser


class CallSpelling(msgspec.Struct, frozen=True):
    """How a model writes a call whose arguments are one JSON object, for grammars that demand one.

    Attributes:
        before_name, after_name, end: around the name and the arguments.
        separator: between two calls.
        is_single: no call can follow another.
    """

    before_name: str
    after_name: str
    end: str
    separator: str = "\n"
    is_single: bool = False


class ToolFormat(msgspec.Struct, frozen=True):
    """How a model writes its calls.

    Calls stand in sections: a mark that begins one, calls with separators between them, a mark
    that ends it. Every part of that may be missing.

    Attributes:
        call: the parts of one call, in their order.
        begins: marks that begin a section.
        ends: marks that end it; missing ones are forgiven.
        bare: beginnings of a call that may stand without a section.
        separators: characters between calls, beside whitespace.
        brackets: the calls of a section may stand in [ ].
        only_at_start: calls are looked for only where nothing but whitespace was said before.
        only_known: a call must name a tool of the request (there is no mark that tells a call from
            other text and the section has none).
        new_id: makes the id of a call; None: the server does.
        spelling: how a call can be demanded; None: it cannot.
    """

    call: tuple[CallPart, ...]
    begins: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    separators: str = ""
    brackets: bool = False
    only_at_start: bool = False
    only_known: bool = False
    new_id: Callable[[], str] | None = None
    spelling: CallSpelling | None = None

    @property
    def marks(self) -> tuple[str, ...]:
        """All fixed texts of the format."""
        return (*self.begins, *self.ends, *(mark for part in self.call for mark in part.marks))


class Opening(enum.Enum):
    """Where a reply begins when its prompt does not say."""

    REASONING = enum.auto()  # no mark needed: all is reasoning up to the end mark
    CONTENT = enum.auto()  # reasoning begins with its mark
    ASKED = enum.auto()  # in reasoning if the request switches thinking on, else with the mark


class ReasoningFormat(msgspec.Struct, frozen=True):
    """How a model marks what it thinks.

    Attributes:
        begin, end: the marks.
        opening: where a reply begins when the prompt's end does not tell.
        obeys_request: a request that switches thinking off makes replies begin with content.
        ends_at_tools: a call ends the reasoning, too.
        drops_stray_ends: an end mark in the content is no text.
    """

    begin: tuple[str, ...]
    end: tuple[str, ...]
    opening: Opening = Opening.CONTENT
    obeys_request: bool = True
    ends_at_tools: bool = False
    drops_stray_ends: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        """All fixed texts of the format."""
        return (*self.begin, *self.end)

    def is_open_after(self, prompt: str, thinking: bool | None, turn_marks: MarkSet) -> bool:
        """True if a reply begins inside of reasoning.

        Only what the template wrote for the reply counts: what stands after the last mark of a
        turn. Where a template has none, only a mark at the very end counts.

        Args:
            prompt: its end is enough.
            thinking: what the request says of it, None: nothing.
            turn_marks: special tokens that are no marks of this format.
        """
        begun = 0
        place, mark = turn_marks.search(prompt, 0, True)
        while mark is not None:
            begun = place + len(mark)
            place, mark = turn_marks.search(prompt, begun, True)
        if begun:
            opened = max(prompt.rfind(text, begun) for text in self.begin)
            closed = max(prompt.rfind(text, begun) for text in self.end)
            if opened != closed:
                return opened > closed
        elif prompt.rstrip().endswith(self.marks):
            return prompt.rstrip().endswith(self.begin)
        if self.opening is Opening.ASKED:
            return thinking is True
        return self.opening is Opening.REASONING and not (self.obeys_request and thinking is False)


class ParserRequest(msgspec.Struct, frozen=True):
    """What a parser may know of a request.

    Attributes:
        tools: JSON schemas of parameters by name of the tool; none: calls are not looked for.
        reads_reasoning: reasoning is told from content.
        prompt_tail: the end of the prompt.
        special_tokens: texts of the tokens that are no text.
    """

    tools: Mapping[str, Any]
    reads_reasoning: bool
    prompt_tail: str
    special_tokens: frozenset[str]


@runtime_checkable
class WholeReplyFormat(Protocol):
    """A format with a parser of its own, for calls and reasoning at once."""

    @property
    def name(self) -> str:
        """For sentences."""
        ...

    @property
    def marks(self) -> tuple[str, ...]:
        """All fixed texts of the format."""
        ...

    @property
    def spelling(self) -> CallSpelling | None:
        """As in `ToolFormat`."""
        ...

    @property
    def answer_headers(self) -> tuple[str, ...]:
        """What a reply with a demanded form has before its answer: one of these, or nothing."""
        ...

    @property
    def call_headers(self) -> tuple[str, ...]:
        """What a reply with demanded calls has before them: one of these, or nothing."""
        ...

    def make(self, request: ParserRequest) -> ReplyParser:
        """A parser for one choice."""
        ...
