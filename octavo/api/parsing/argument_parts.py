"""Arguments that are no JSON, read as they come and passed on as JSON.

Runs in: API process. Owns: two notations. Knows nothing of: what stands around the arguments.
"""

from __future__ import annotations

import json
import re

from octavo.api.parsing.call_parts import read_value
from octavo.api.parsing.call_sink import MAX_NAME_CHARACTERS, CallSink
from octavo.api.parsing.marks import MarkSet
from octavo.api.parsing.reader import Malformed, Reader, Steps
from octavo.api.parsing.schema_values import json_of, parameter_types
from octavo.api.parsing.values import PYTHON, json_escaped

_IDENTIFIER_CHARACTER = re.compile(r"\w")
_STRING_ONLY = frozenset({"string"})


class TaggedArguments:
    """Each argument in tags, like `<parameter=city>Paris</parameter>`.

    A text is passed on as it comes. Other values are passed on when they are whole, as what the
    tool's schema asks for.

    Args:
        begin, key_end: around a key.
        value_begin: before the value, if there is more than `key_end`.
        end: after the value; a missing one is forgiven.
        ends: marks after the last argument, not used.
        trims: a line end after the first tag and one before the last are no part of the value.
    """

    def __init__(
        self,
        begin: str,
        key_end: str,
        end: str,
        *,
        ends: tuple[str, ...],
        value_begin: str | None = None,
        trims: bool = False,
    ) -> None:
        self._begin = begin
        self._key_end = MarkSet((key_end,))
        self._value_begin = MarkSet((value_begin,)) if value_begin else None
        self._end = end
        self._next = MarkSet((begin, *ends))
        self._value_ends = MarkSet((begin, end, *ends))
        self._trims = trims
        self.marks = (begin, key_end, end, *((value_begin,) if value_begin else ()))

    def read(self, reader: Reader, call: CallSink) -> Steps[None]:
        """See `CallPart`."""
        separator = ""
        call.arguments("{")
        while True:
            _, mark = yield from reader.until(self._next)
            if mark is None:
                raise Malformed
            if mark != self._begin:
                break
            reader.take(reader.position + len(mark))
            key, mark = yield from reader.until(self._key_end)
            if mark is None:
                raise Malformed
            reader.take(reader.position + len(mark))
            if self._value_begin is not None:
                yield from reader.space()
                yield from reader.mark(self._value_begin)
            key = key.strip()
            call.arguments(f"{separator}{json.dumps(key, ensure_ascii=False)}: ")
            separator = ", "
            yield from self._value(reader, call, key)
        call.arguments("}")
        call.has_arguments = True

    def _value(self, reader: Reader, call: CallSink, key: str) -> Steps[None]:
        types = parameter_types(call.schemas.get(call.name or ""), key)
        if types <= _STRING_ONLY:
            yield from self._text(reader, call)
        else:
            text, mark = yield from reader.until(self._value_ends)
            if mark is None:
                raise Malformed
            call.arguments(json_of(self._trimmed(text), types))
        if (yield from reader.find(self._value_ends)) == self._end:
            reader.take(reader.position + len(self._end))

    def _trimmed(self, text: str) -> str:
        return text.removeprefix("\n").removesuffix("\n") if self._trims else text

    def _text(self, reader: Reader, call: CallSink) -> Steps[None]:
        """A text, as it comes; a line end is held back as long as it may be the last character."""
        call.arguments('"')
        held = ""
        is_first = self._trims
        while True:
            place, mark = self._value_ends.search(reader.text, reader.position, reader.ended)
            text = held + reader.take(place)
            held = ""
            if is_first and text:
                text = text.removeprefix("\n")
                is_first = False
            if self._trims and not reader.ended and text.endswith("\n"):
                held, text = "\n", text[:-1]
            call.arguments(json_escaped(text))
            if mark is not None:
                break
            if reader.ended:
                raise Malformed
            yield
        call.arguments('"')


class PythonArguments:
    """Keyword arguments of a call in Python, up to and with the closing parenthesis."""

    marks: tuple[str, ...] = ()

    def read(self, reader: Reader, call: CallSink) -> Steps[None]:
        """See `CallPart`."""
        separator = ""
        call.arguments("{")
        while True:
            yield from reader.space()
            if (yield from reader.peek()) == ")":
                break
            key = yield from reader.run(_IDENTIFIER_CHARACTER, MAX_NAME_CHARACTERS)
            if not key:
                raise Malformed
            yield from reader.space()
            yield from reader.character("=")
            yield from reader.space()
            call.arguments(f"{separator}{json.dumps(key, ensure_ascii=False)}: ")
            separator = ", "
            yield from read_value(reader, PYTHON, call.arguments)
            yield from reader.space()
            if (yield from reader.peek()) == ")":
                break
            yield from reader.character(",")
        reader.take(reader.position + 1)
        call.arguments("}")
        call.has_arguments = True
