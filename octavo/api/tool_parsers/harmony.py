"""gpt-oss: messages of OpenAI's harmony format, reasoning and calls in one.

    <|channel|>analysis<|message|>I look.<|end|><|start|>assistant<|channel|>commentary
    to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>

A message is what its header says: `analysis` is reasoning, `final` and `commentary` are content,
one to a function is a call. Messages of one kind are joined by a line end. The text is read by the
parsers' own means; the package openai-harmony is not needed.

Source of the format: https://cookbook.openai.com/articles/openai-harmony
Runs in: API process. Owns: which header means what. Knows nothing of: requests.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from octavo.api.parsing.definition import CallSpelling, ParserRequest
from octavo.api.parsing.marks import MarkSet
from octavo.api.parsing.pieces import (
    Content,
    Piece,
    Reasoning,
    ReplyParser,
    ToolCallArguments,
    ToolCallStart,
)
from octavo.api.parsing.reader import Steps
from octavo.api.parsing.stepped import SteppedParser

_START, _CHANNEL, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
#: where a header begins, outside of a message
_HEADER_BEGINS = MarkSet((_START, _CHANNEL, _MESSAGE, " to=functions."))
_HEADER_END = MarkSet((_MESSAGE,))
_HEADER_ENDS = MarkSet((_MESSAGE, _START, *_ENDS))
_RECIPIENT = re.compile(r"(?<=\s)to=(functions\.)?([^\s<]+)")
_CHANNEL_NAME = re.compile(re.escape(_CHANNEL) + r"\s*(\w+)")
#: a longer one is none
MAX_HEADER_CHARACTERS = 1024


class HarmonyFormat:
    """See `WholeReplyFormat`."""

    name = "openai"
    marks: tuple[str, ...] = (_START, _CHANNEL, _MESSAGE, "<|constrain|>", *_ENDS)

    #: the end mark is the end of the output, which no grammar demands
    spelling: CallSpelling | None = CallSpelling(
        "<|channel|>commentary to=functions.",
        " <|constrain|>json<|message|>",
        "",
        is_single=True,
    )

    answer_headers: tuple[str, ...] = (f"{_CHANNEL}final{_MESSAGE}",)
    #: a message of reasoning comes before
    call_headers: tuple[str, ...] = (f"{_START}assistant",)

    def make(self, request: ParserRequest) -> ReplyParser:
        """A parser for one choice."""
        return HarmonyParser(request)


HARMONY = HarmonyFormat()


class HarmonyParser(SteppedParser):
    """A `ReplyParser`."""

    def __init__(self, request: ParserRequest) -> None:
        super().__init__()
        self._tools = request.tools
        self._silent = request.special_tokens.difference(HarmonyFormat.marks)
        self._outside = MarkSet({*_HEADER_BEGINS.marks, *_ENDS, *self._silent})
        self._inside = MarkSet({_START, *_ENDS, *self._silent})
        self._num_calls = 0
        self._said: set[type[Piece]] = set()  # kinds of messages that had text
        self._begin(self._reply(request.prompt_tail))

    def _reply(self, prompt: str) -> Steps[None]:
        """The prompt ends in a header, before `<|message|>`, or in a message."""
        begun = prompt.rfind(_START)
        header, mark, _ = prompt[begun if begun >= 0 else len(prompt) :].partition(_MESSAGE)
        yield
        if mark:
            yield from self._message(header)
            header = ""
        while (yield from self._to_header()):
            found = yield from self._header()
            if found is not None:
                yield from self._message(header + found)
                header = ""

    def _to_header(self) -> Steps[bool]:
        """Text outside of messages, which should not be, is content; not so mere whitespace."""
        reader = self._reader
        space: list[str] | None = []
        while True:
            place, mark = self._outside.search(reader.text, reader.position, reader.ended)
            text = reader.take(place)
            if space is None:
                self._say(Content, text)
            else:
                space.append(text)
                if text and not text.isspace():
                    self._say(Content, "".join(space))
                    space = None
            if mark in _HEADER_BEGINS.marks:
                return True
            if mark is not None:
                reader.take(place + len(mark))
            elif reader.ended:
                return False
            else:
                yield

    def _header(self) -> Steps[str | None]:
        """Uses a header and its end; None: it was none, and is content."""
        reader = self._reader
        if (yield from reader.mark(_HEADER_END)) is not None:
            return ""  # the prompt has written it
        reader.hold()
        parts = [reader.take(reader.position + 1)]
        while sum(map(len, parts)) <= MAX_HEADER_CHARACTERS:
            place, mark = _HEADER_ENDS.search(reader.text, reader.position, reader.ended)
            room = MAX_HEADER_CHARACTERS + 1 - sum(map(len, parts))
            parts.append(reader.take(min(place, reader.position + room)))
            if reader.position == place and mark == _MESSAGE:
                reader.release()
                reader.take(place + len(mark))
                return "".join(parts)
            if mark is not None or reader.ended:
                break
            yield
        self._say(Content, reader.release())
        return None

    def _message(self, header: str) -> Steps[None]:
        recipient, channel = _RECIPIENT.search(header), _CHANNEL_NAME.search(header)
        if recipient is not None and (recipient[1] or recipient[2] in self._tools) and self._tools:
            yield from self._call(recipient[2])
        elif (channel is not None and channel[1] == "analysis") or (
            recipient is not None and not recipient[1]
        ):
            yield from self._text(Reasoning)
        else:
            yield from self._text(Content)

    def _text(self, kind: type[Content] | type[Reasoning]) -> Steps[None]:
        joint = "\n" if kind in self._said else ""

        def say(text: str) -> None:
            nonlocal joint
            self._say(kind, joint + text)
            joint = ""

        yield from self._body(say)

    def _call(self, name: str) -> Steps[None]:
        index = self._num_calls
        self._num_calls += 1
        self._out.append(ToolCallStart(index, name))
        is_empty = True

        def say(text: str) -> None:
            nonlocal is_empty
            is_empty = False
            self._out.append(ToolCallArguments(index, text))

        if (yield from self._body(say)) and is_empty:
            say("{}")

    def _body(self, say: Callable[[str], None]) -> Steps[bool]:
        """The text of a message, and its end mark; False: it was cut off."""
        reader = self._reader
        while True:
            place, mark = self._inside.search(reader.text, reader.position, reader.ended)
            text = reader.take(place)
            if text:
                say(text)
            if mark is None:
                if reader.ended:
                    return False
                yield
                continue
            if mark == _START:
                return True
            reader.take(place + len(mark))
            if mark in _ENDS:
                return True

    def _say(self, kind: type[Content] | type[Reasoning], text: str) -> None:
        if not text:
            return
        self._said.add(kind)
        self._out.append(kind(text))
