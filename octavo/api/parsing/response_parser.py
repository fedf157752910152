"""`ResponseTemplateParser`: reads replies by transformers' response_template.

The rules are those of transformers 5.24 (`transformers.utils.chat_parsing.response_parser`): a
field begins and ends at its anchors, the earliest and longest first; an anchor that text to come
could change is waited for. Texts are passed on as they come, calls when their field has ended. A
field of calls that cannot be read is content.

Runs in: API process. Owns: where a reply is among its fields. Knows nothing of: HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import regex

from octavo.api.parsing.definition import CallSpelling, ParserRequest
from octavo.api.parsing.pieces import (
    Content,
    Piece,
    Reasoning,
    ReplyParser,
    ToolCallArguments,
    ToolCallStart,
    merged,
)
from octavo.api.parsing.response_content import parse_content, transformed
from octavo.api.parsing.response_template import (
    REASONING_FIELD,
    TOOL_FIELD,
    Anchor,
    Field,
    ResponseTemplate,
    load_template,
)
from octavo.api.parsing.schema_values import json_of, parameter_types

#: characters before a place that patterns may look back at
_LOOK_BACK = 1024
#: anchors without a character, one after another, after which a pattern is taken for broken
_MAX_IDLE = 4
#: characters read at once: a pattern that is not there is looked for in so many, again and again
_CUT = 4096


class ResponseTemplateFormat:
    """See `WholeReplyFormat`."""

    name = "hf"
    spelling: CallSpelling | None = None
    answer_headers: tuple[str, ...] = ()
    call_headers: tuple[str, ...] = ()

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._template = load_template(spec)
        fields = self._template.fields
        self.has_tools = TOOL_FIELD in fields
        self.has_reasoning = REASONING_FIELD in fields
        anchors = [a for field in fields.values() for a in (field.begin, field.end) if a]
        self.marks = tuple(text for anchor in anchors for text in anchor.texts)

    def make(self, request: ParserRequest) -> ReplyParser:
        """A parser for one choice."""
        return ResponseTemplateParser(self._template, request)


class _Found(msgspec.Struct, frozen=True):
    """An anchor in the text; `is_begin`: of the field's beginning."""

    field: Field
    is_begin: bool
    match: regex.Match[str]

    @property
    def rank(self) -> tuple[int, int, int, str]:
        """The smallest counts: the earliest, then the longest, then beginnings."""
        start, end = self.match.span()
        return start, start - end, 0 if self.is_begin else 1, self.field.name


class ResponseTemplateParser:
    """A `ReplyParser`."""

    def __init__(self, template: ResponseTemplate, request: ParserRequest) -> None:
        self._template = template
        self._tools = request.tools
        self._reads_reasoning = request.reads_reasoning
        self._text = ""
        self._position = 0
        self._look_again_at = 0  # length of a text that waits from which on it is looked at again
        self._out: list[Piece] = []
        self._num_calls = 0
        self._joined: set[str] = set()  # fields that had a text and join the next to it
        self._is_open = False
        self._captures: dict[str, str] = {}
        self._body: list[str] = []
        self._raw: list[str] = []  # with the anchors
        self._space: list[str] = []  # whitespace that is said if text follows
        self._has_text = False
        self._field = template.implicit
        prompt = request.prompt_tail
        for match in template.start.pattern.finditer(request.prompt_tail):
            prompt = request.prompt_tail[match.end() :]
        self.feed(prompt)  # what it says was not said by the model
        self._raw = []
        self._num_calls = 0

    def _reset(self) -> None:
        """Back to what stands outside of the fields."""
        self._field = self._template.implicit
        self._is_open = False
        self._captures = {}
        self._body = []
        self._raw = []
        self._space = []
        self._has_text = False

    def feed(self, text: str) -> list[Piece]:
        """See `ReplyParser`."""
        for begin in range(0, len(text), _CUT):
            keep = max(0, self._position - _LOOK_BACK)
            self._text = self._text[keep:] + text[begin : begin + _CUT]
            self._position -= keep
            self._look_again_at = max(0, self._look_again_at - keep)
            if len(self._text) >= self._look_again_at:
                self._read(has_ended=False)
        return self._taken()

    def finish(self) -> list[Piece]:
        """See `ReplyParser`."""
        self._read(has_ended=True)
        return self._taken()

    def _taken(self) -> list[Piece]:
        out, self._out = self._out, []
        return merged(out)

    def _read(self, *, has_ended: bool) -> None:
        num_idle = 0
        while True:
            found, wait_at = self._scan(has_ended)
            if found is None or num_idle > _MAX_IDLE:
                break
            start, end = found.match.span()
            num_idle = num_idle + 1 if end == self._position else 0
            self._take(self._text[self._position : start])
            self._position = end
            if found.is_begin:
                self._close("")
                self._open(found)
                continue
            was_open = self._is_open
            self._captures.update(
                {k: v for k, v in found.match.groupdict().items() if v is not None}
            )
            self._close(found.match[0])
            if not was_open and start == end:
                break
        end = len(self._text) if has_ended else wait_at
        if end > self._position:
            self._take(self._text[self._position : end])
            self._position = end
        waiting = len(self._text) - self._position
        self._look_again_at = len(self._text) + waiting if waiting > _CUT else 0
        if has_ended:
            self._close("")

    def _scan(self, has_ended: bool) -> tuple[_Found | None, int]:
        """The anchor that comes next, if it is certain, and where one possibly begins."""
        best: _Found | None = None
        wait_at = len(self._text)
        for field, is_begin, anchor in self._watched():
            match = anchor.pattern.search(self._text, self._position, partial=not has_ended)
            if match is None:
                continue
            if not has_ended and (match.partial or self._may_change(anchor, match)):
                wait_at = min(wait_at, match.start())
                continue
            found = _Found(field, is_begin, match)
            if best is None or found.rank < best.rank:
                best = found
        if best is not None and best.match.start() >= wait_at and not has_ended:
            best = None
        return best, wait_at

    def _watched(self) -> Sequence[tuple[Field, bool, Anchor]]:
        template, field = self._template, self._field
        if field is not None and field is not template.implicit:
            return [(field, False, field.end)] if field.end is not None else []
        watched = [(f, True, f.begin) for f in template.fields.values() if f.begin is not None]
        if field is not None and field.end is not None:
            watched.append((field, False, field.end))
        return watched

    def _may_change(self, anchor: Anchor, match: regex.Match[str]) -> bool:
        """True if text to come can make another match of a complete one."""
        end = len(self._text)
        if match.end() == end:
            return match.start() == end or not anchor.is_literal or anchor.can_grow
        if anchor.is_literal or end - match.end() > _LOOK_BACK:
            return False
        # with a character after the end that is no line end
        begin = max(0, match.start() - _LOOK_BACK)
        again = anchor.pattern.match(self._text[begin:] + "\0", match.start() - begin)
        return (
            again is None
            or again.span() != (match.start() - begin, match.end() - begin)
            or again.groupdict() != match.groupdict()
        )

    def _take(self, text: str) -> None:
        if not text or self._field is None:
            return
        self._is_open = True
        if self._field.name == TOOL_FIELD:
            self._body.append(text)
            self._raw.append(text)
        else:
            self._say(text)

    def _say(self, text: str) -> None:
        """A text without the whitespace around it, if the field says so."""
        field = self._field
        assert field is not None
        if field.strips:
            if not self._has_text:
                text = text.lstrip()
            rest = text.rstrip()
            if not rest:
                self._space.append(text)
                return
            self._space, text, space = [], "".join(self._space) + rest, text[len(rest) :]
            self._space = [space]
        if not self._has_text and field.join is not None:
            if field.name in self._joined:
                text = field.join + text
            self._joined.add(field.name)
        self._has_text = True
        self._emit(field, text)

    def _emit(self, field: Field, text: str) -> None:
        is_reasoning = field.name == REASONING_FIELD and self._reads_reasoning
        if text:
            self._out.append(Reasoning(text) if is_reasoning else Content(text))

    def _open(self, found: _Found) -> None:
        self._field = found.field
        self._is_open = True
        self._captures = _groups(found.match)
        self._raw = [found.match[0]]

    def _close(self, mark: str) -> None:
        if self._is_open and self._field is not None and self._field.name == TOOL_FIELD:
            self._raw.append(mark)
            calls = self._calls(self._field) if self._tools else []
            if not calls:
                self._out.append(Content("".join(self._raw)))
            for name, arguments, call_id in calls:
                self._out.append(ToolCallStart(self._num_calls, name, call_id))
                self._out.append(ToolCallArguments(self._num_calls, arguments))
                self._num_calls += 1
        self._reset()

    def _calls(self, field: Field) -> list[tuple[str, str, str | None]]:
        """(name, arguments, id) of the calls of a field; none if one of them cannot be read."""
        try:
            value = parse_content("".join(self._body), field.content, field.content_args)
            if field.transform_each:
                value = [transformed(field.transform, {**self._captures, **one}) for one in value]
            elif field.transform is not None:
                value = transformed(field.transform, {**self._captures, "content": value})
            items = value if isinstance(value, list) else [value]
            return [self._call(item) for item in items]
        except (ValueError, TypeError, KeyError, RecursionError):
            return []

    def _call(self, item: Mapping[str, Any]) -> tuple[str, str, str | None]:
        function = item["function"]
        name, arguments = function["name"], function["arguments"]
        if not isinstance(name, str) or not name or arguments is None:
            raise ValueError("a call without name or arguments")
        if isinstance(arguments, dict):
            schema = self._tools.get(name)
            arguments = {key: _cast(value, schema, key) for key, value in arguments.items()}
        call_id = item.get("id")
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        return name, arguments, call_id if isinstance(call_id, str) else None


def _groups(match: regex.Match[str]) -> dict[str, str]:
    return {name: text for name, text in match.groupdict().items() if text is not None}


def _cast(value: Any, parameters: Any, key: str) -> Any:
    """Texts as what the tool's schema asks for."""
    types = parameter_types(parameters, key)
    if isinstance(value, str) and types:
        return json.loads(json_of(value, types))
    if isinstance(value, list) and types and "array" not in types:
        return [json.loads(json_of(one, types)) if isinstance(one, str) else one for one in value]
    return value
