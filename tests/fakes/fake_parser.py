"""A reply parser without regular expressions, for what is put around parsers.

    [reasoning] content {name:arguments} content

Square brackets hold reasoning, braces a call; everything is certain at once but the name of a call.
"""

from __future__ import annotations

from octavo.api.parsing.pieces import (
    Content,
    Piece,
    Reasoning,
    ToolCallArguments,
    ToolCallStart,
)


class FakeParser:
    """See the module."""

    def __init__(self, *, first_id: str | None = None) -> None:
        self._first_id = first_id
        self._state = "content"
        self._name = ""
        self._num_calls = 0

    def feed(self, text: str) -> list[Piece]:
        return [piece for character in text for piece in self._step(character)]

    def finish(self) -> list[Piece]:
        return [Content("{" + self._name)] if self._state == "name" else []

    def _step(self, character: str) -> list[Piece]:
        if self._state == "name":
            if character != ":":
                self._name += character
                return []
            self._state = "arguments"
            index, self._num_calls = self._num_calls, self._num_calls + 1
            return [ToolCallStart(index, self._name, None if index else self._first_id)]
        if self._state == "arguments":
            if character == "}":
                self._state = "content"
                return []
            return [ToolCallArguments(self._num_calls - 1, character)]
        if self._state == "reasoning":
            if character == "]":
                self._state = "content"
                return []
            return [Reasoning(character)]
        if character == "[":
            self._state = "reasoning"
            return []
        if character == "{":
            self._state, self._name = "name", ""
            return []
        return [Content(character)]
