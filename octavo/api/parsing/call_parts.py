"""The parts a call is made of; a definition puts them in a row.

A part reads its text and tells the `CallSink` what it says. It raises `Malformed` at the first
character that cannot be.

Runs in: API process. Owns: the notations of names and arguments. Knows nothing of: what stands
around a call, models.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Protocol

from octavo.api.parsing.call_sink import MAX_NAME_CHARACTERS, CallSink
from octavo.api.parsing.marks import MarkSet
from octavo.api.parsing.reader import Malformed, Reader, Steps
from octavo.api.parsing.values import JSON, Notation, ValueScanner

_ESCAPE = re.compile(r"\\(?:u(?![dD])[0-9a-fA-F]{4}|[^u])")
_NAME_CHARACTER = re.compile(r"[\w.:/$@#-]")


class CallPart(Protocol):
    """See the module."""

    @property
    def marks(self) -> tuple[str, ...]:
        """All fixed texts of the part."""
        ...

    def read(self, reader: Reader, call: CallSink) -> Steps[None]:
        """Uses the part's text.

        Raises:
            Malformed: it is not there, or not whole.
        """
        ...


class Fixed:
    """A fixed text: one of some spellings, with whitespace before it.

    Args:
        optional: it may be missing.
    """

    def __init__(self, *spellings: str, optional: bool = False) -> None:
        self.marks = spellings
        self._marks = MarkSet(spellings)
        self._optional = optional

    def read(self, reader: Reader, call: CallSink) -> Steps[None]:
        """See `CallPart`."""
        yield from reader.space()
        if (yield from reader.mark(self._marks)) is not None:
            return
        if call.has_arguments:
            reader.drop_beginning(self._marks)
        if not self._optional:
            raise Malformed


class Name:
    """The tool's name and a mark after it, which is used (`ends`) or left (`before`).

    Args:
        id_pattern: the text is an id if it matches; the group `name` is the tool's name.
        announces: the call is announced here; else by its arguments.
    """

    def __init__(
        self,
        ends: tuple[str, ...] = (),
        before: tuple[str, ...] = (),
        *,
        id_pattern: str | None = None,
        announces: bool = True,
    ) -> None:
        self.marks = ends
        self._marks = MarkSet((*ends, *before))
        self._ends = frozenset(ends)
        self._id_pattern = re.compile(id_pattern) if id_pattern else None
        self._announces = announces

    def read(self, reader: Reader, call: CallSink) -> Steps[None]:
        """See `CallPart`."""
        yield from reader.space()
        name = yield from reader.run(_NAME_CHARACTER, MAX_NAME_CHARACTERS)
        yield from reader.space()
        mark = yield from reader.find(self._marks)
        if mark is None or not name:
            raise Malformed
        if mark in self._ends:
            reader.take(reader.position + len(mark))
        match = self._id_pattern.fullmatch(name) if self._id_pattern else None
        if match is not None:
            call.call_id, name = name, match["name"]
        call.set_name(name)
        if self._announces:
            call.start()


class CallId:
    """An id after a mark, if the mark is there."""

    def __init__(self, begin: str) -> None:
        self.marks = (begin,)
        self._marks = MarkSet(self.marks)

    def read(self, reader: Reader, call: CallSink) -> Steps[None]:
        """See `CallPart`."""
        yield from reader.space()
        if (yield from reader.mark(self._marks)) is not None:
            call.call_id = yield from reader.run(_NAME_CHARACTER, MAX_NAME_CHARACTERS)


class Arguments:
    """Arguments that are one JSON object, passed on as it is written; nothing: no arguments."""

    marks: tuple[str, ...] = ()

    def read(self, reader: Reader, call: CallSink) -> Steps[None]:
        """See `CallPart`."""
        call.start()
        yield from reader.space()
        if (yield from reader.peek()) == "{":
            yield from read_value(reader, JSON, call.arguments)
            call.has_arguments = True


class Either:
    """One of two forms, told by the first character."""

    def __init__(
        self, first: str, then: tuple[CallPart, ...], otherwise: tuple[CallPart, ...]
    ) -> None:
        self.marks = tuple(mark for part in (*then, *otherwise) for mark in part.marks)
        self._first = first
        self._then = then
        self._otherwise = otherwise

    def read(self, reader: Reader, call: CallSink) -> Steps[None]:
        """See `CallPart`."""
        yield from reader.space()
        is_then = (yield from reader.peek()) == self._first
        for part in self._then if is_then else self._otherwise:
            yield from part.read(reader, call)


class Envelope:
    """One JSON object that holds the name and the arguments; other keys mean nothing.

    Args:
        name_keys, argument_keys: how they are called.
        other_keys: where no mark tells a call from other text, these may be there, too.
    """

    def __init__(
        self,
        name_keys: tuple[str, ...] = ("name",),
        argument_keys: tuple[str, ...] = ("arguments", "parameters"),
        other_keys: tuple[str, ...] = ("type", "id"),
    ) -> None:
        self.marks: tuple[str, ...] = ()
        self._name_keys = name_keys
        self._argument_keys = argument_keys
        self._other_keys = other_keys

    def read(self, reader: Reader, call: CallSink) -> Steps[None]:
        """See `CallPart`."""
        yield from reader.space()
        yield from reader.character("{")
        yield from reader.space()
        if (yield from reader.peek()) == "}":
            raise Malformed
        while True:
            yield from self._member(reader, call)
            yield from reader.space()
            if (yield from reader.peek()) == "}":
                reader.take(reader.position + 1)
                return
            yield from reader.character(",")
            yield from reader.space()

    def _member(self, reader: Reader, call: CallSink) -> Steps[None]:
        key = yield from read_string(reader)
        yield from reader.space()
        yield from reader.character(":")
        yield from reader.space()
        if key in self._name_keys and call.name is None:
            call.set_name((yield from read_string(reader)))
            if not call.only_known or call.has_arguments:
                call.start()
        elif key in self._argument_keys and not call.has_arguments:
            call.start()
            yield from read_arguments(reader, call)
        else:
            if call.only_known and not call.is_started and key not in self._other_keys:
                call.reject()
            yield from read_value(reader, JSON, lambda text: None)


def read_arguments(reader: Reader, call: CallSink) -> Steps[None]:
    """Arguments as a value of JSON: an object as it is; a string that holds an object, decoded;
    null as none."""
    first = yield from reader.peek()
    if first == '"':
        yield from _string_arguments(reader, call)
    elif first == "n":
        yield from read_value(reader, JSON, lambda text: None)
        call.arguments("{}")
    else:
        yield from read_value(reader, JSON, call.arguments)
    call.has_arguments = True


def _string_arguments(reader: Reader, call: CallSink) -> Steps[None]:
    """Decodes a string as it comes. Halves of surrogate pairs stay escapes: what is decoded is JSON
    itself, in which they mean the same."""
    is_empty = True

    def decode(fragments: list[str]) -> None:
        nonlocal is_empty
        text = "".join(map(_decoded, fragments))
        is_empty = is_empty and not text
        call.arguments(text)

    yield from _scan(reader, ValueScanner(JSON), decode)
    if is_empty:
        call.arguments("{}")


def _decoded(fragment: str) -> str:
    """What a scanner has written of a string at once: whole escapes and other text, or a quote."""
    return "" if fragment == '"' else _ESCAPE.sub(_unescaped, fragment)


def _unescaped(match: re.Match[str]) -> str:
    text: str = json.loads(f'"{match[0]}"')
    return text


def read_value(reader: Reader, notation: Notation, emit: Callable[[str], None]) -> Steps[None]:
    """Uses one value; what is written of it goes to `emit`, also before it fails.

    Raises:
        Malformed: it is none, or not whole.
    """
    yield from _scan(reader, ValueScanner(notation), lambda parts: emit("".join(parts)))


def read_string(reader: Reader) -> Steps[str]:
    """Uses one string of JSON; gives what it means.

    Raises:
        Malformed: it is none, or not whole.
    """
    if (yield from reader.peek()) != '"':
        raise Malformed
    parts: list[str] = []
    yield from _scan(reader, ValueScanner(JSON), parts.extend)
    text: str = json.loads("".join(parts))
    return text


def _scan(reader: Reader, scanner: ValueScanner, emit: Callable[[list[str]], None]) -> Steps[None]:
    while not scanner.is_done:
        out: list[str] = []
        has_ended = not (yield from reader.more())
        if has_ended:
            scanner.finish(out)
        else:
            reader.take(scanner.scan(reader.text, reader.position, out))
        if out:
            emit(out)
        if scanner.has_failed or (has_ended and not scanner.is_done):
            raise Malformed
