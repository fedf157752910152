"""`MarkedReplyParser`: reads replies of any format that a definition can tell.

One pass: text is looked at once, whatever it holds. Free text goes on as soon as it cannot be the
beginning of a mark. A section of calls is held back until its first call has a name; if it turns
out to be none, its text is content.

Runs in: API process. Owns: what a reply is at, at each character. Knows nothing of: models, HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.api.parsing.call_sink import CallSink
from octavo.api.parsing.pieces import Content, Piece, Reasoning
from octavo.api.parsing.reader import Malformed, Steps
from octavo.api.parsing.reply_format import Action, ReplyFormat
from octavo.api.parsing.stepped import SteppedParser


class MarkedReplyParser(SteppedParser):
    """A `ReplyParser` for one choice.

    Args:
        in_reasoning: the reply begins inside of it.
        schemas: parameters of the request's tools by name.
    """

    def __init__(
        self, form: ReplyFormat, *, in_reasoning: bool = False, schemas: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self._form = form
        self._schemas = schemas
        self._in_reasoning = in_reasoning
        self._num_calls = 0
        self._owes_end = False  # a section was left without its end mark
        self._has_text = False  # content other than whitespace was said
        # whitespace at the beginning of a run of content; nothing if a call follows
        self._space: list[str] | None = []
        self._begin(self._reply())

    def _reply(self) -> Steps[None]:
        form, reader = self._form, self._reader
        yield
        while True:
            actions = form.reasoning if self._in_reasoning else form.content
            place, mark = actions.marks.search(reader.text, reader.position, reader.ended)
            self._say(reader.take(place))
            if mark is not None:
                yield from self._at(mark, actions.action_of[mark])
            elif reader.ended:
                break
            else:
                yield
        self._end_space()

    def _at(self, mark: str, action: Action) -> Steps[None]:
        """In free text, at a mark that is not used."""
        reader = self._reader
        if action is Action.CALLS and self._may_call():
            yield from self._section()
            return
        if action is Action.TOOL_END and self._owes_end:
            self._owes_end = False
            reader.take(reader.position + len(mark))
            return
        if action in (Action.CALLS, Action.TOOL_END):  # of no meaning here
            self._say(reader.take(reader.position + 1))
            return
        reader.take(reader.position + len(mark))
        if action is Action.REASONING_BEGIN:
            self._in_reasoning = True
            self._begin_run()
        elif action is Action.REASONING_END:
            self._in_reasoning = False
            self._begin_run()

    def _may_call(self) -> bool:
        tools = self._form.tools
        assert tools is not None
        return not (tools.only_at_start and (self._has_text or self._num_calls))

    def _section(self) -> Steps[None]:
        """Calls until the end mark, or until what comes is none."""
        form, reader = self._form, self._reader
        assert form.tools is not None
        num_before = self._num_calls
        reader.hold()
        is_marked = (yield from reader.mark(form.begin_marks)) is not None
        in_list = form.tools.brackets and (yield from self._list_begins())
        separators = "," if in_list else form.tools.separators
        while True:
            yield from reader.space(separators)
            has_calls = self._num_calls > num_before
            if has_calls and (yield from self._section_ends(in_list)):
                reader.release()
                self._begin_run()
                return
            if not (yield from self._call(is_marked)):
                break
            reader.hold()
        raw = reader.release()
        if has_calls:
            self._owes_end = True
            self._begin_run()
            if not raw.strip(f" \t\r\n{separators}"):
                raw = raw.strip(separators)  # nobody asked for separators
        self._say(raw)

    def _list_begins(self) -> Steps[bool]:
        reader = self._reader
        yield from reader.space()
        if (yield from reader.peek()) != "[":
            return False
        reader.take(reader.position + 1)
        return True

    def _section_ends(self, in_list: bool) -> Steps[bool]:
        """Uses the end of a section, if it is here. A list ends it without a mark, too."""
        reader = self._reader
        if in_list:
            if (yield from reader.peek()) != "]":
                return False
            reader.take(reader.position + 1)
            if not self._form.end_marks.marks:
                return True
            yield from reader.space()
        found = yield from reader.mark(self._form.end_marks)
        return in_list or found is not None or reader.drop_beginning(self._form.end_marks)

    def _call(self, is_marked: bool) -> Steps[bool]:
        """One call; False: what is here is none.

        Args:
            is_marked: a mark said that calls follow.
        """
        form, reader = self._form, self._reader
        assert form.tools is not None
        call = CallSink(
            self._num_calls,
            self._schemas,
            emit=self._out_append,
            on_start=self._start_call,
            on_reject=lambda: reader.divert(self._say),
            only_known=form.tools.only_known and not is_marked,
            new_id=form.tools.new_id,
        )
        try:
            for part in form.tools.call:
                yield from part.read(reader, call)
            call.end()
        except Malformed:
            if not call.has_arguments and call.is_started:
                yield from self._broken_arguments(call)
        return call.is_started

    def _start_call(self) -> None:
        self._reader.release()
        self._space = []
        self._in_reasoning = False
        self._num_calls += 1

    def _broken_arguments(self, call: CallSink) -> Steps[None]:
        """The call is announced and its arguments are no JSON: they are passed on as they are, up
        to the next mark of the format."""
        form, reader = self._form, self._reader
        if not form.stops.marks:
            return
        while True:
            place, mark = form.stops.search(reader.text, reader.position, reader.ended)
            call.arguments(reader.take(place))
            if mark is not None or reader.ended:
                break
            yield
        for part in form.call_ends:
            yield from part.read(reader, call)

    def _out_append(self, piece: Piece) -> None:
        self._out.append(piece)

    def _say(self, text: str) -> None:
        """Text for the user, or what the model thinks."""
        if not text:
            return
        if self._in_reasoning:
            self._out.append(Reasoning(text))
            return
        if self._space is not None:
            self._space.append(text)
            if text.isspace():
                return
            text = "".join(self._space)
            self._space = None
            self._has_text = True
        self._out.append(Content(text))

    def _begin_run(self) -> None:
        """What comes is no continuation of the content so far."""
        self._space = []

    def _end_space(self) -> None:
        if self._space and not self._num_calls:
            self._out.append(Content("".join(self._space)))
