"""`TextInput`: the one text in the arguments of a call, as it comes.

    {"input": "SELECT \\"a\\""}  ->  SELECT "a"

Arguments of another form are the text themselves: a model that was not held to the form has written
something, and nothing is lost.

Used by: `octavo/api/assembler.py`. Runs in: API process. Owns: what is held back.
Knows nothing of: wire formats, HTTP.
"""

from __future__ import annotations

import json
from typing import Final

_SHORT: Final = dict(zip('"\\/bfnrt', '"\\/\b\f\n\r\t', strict=True))


class TextInput:
    """One call.

    Args:
        name: of the argument.
    """

    __slots__ = ("_head", "_held", "_is_plain", "_num_matched", "_rest", "is_done")

    def __init__(self, name: str) -> None:
        self._head = f'{{{json.dumps(name)}:"'
        self._num_matched = 0  # characters of the head that came
        self._held = ""  # of the beginning, until it is certain that it is one
        self._rest = ""  # the beginning of an escape
        self._is_plain = False  # the arguments are the text
        self.is_done = False

    def feed(self, text: str) -> str:
        """Takes the next characters of the arguments; gives what is certain of the text."""
        if self._is_plain:
            return text
        place = 0
        while self._num_matched < len(self._head):
            if place == len(text):
                self._held += text
                return ""
            if not self._matches(text[place]):
                return self._plain(text)
            place += 1
        self._held = ""
        return "" if self.is_done else self._decoded(self._rest + text[place:])

    def finish(self) -> str:
        """The call has ended; gives what is left."""
        if self._is_plain or self._num_matched == len(self._head):
            return ""
        held, self._held = self._held, ""
        return "" if "".join(held.split()) in ("", "{", "{}") else held

    def _matches(self, character: str) -> bool:
        head, number = self._head, self._num_matched
        if character == head[number]:
            self._num_matched += 1
            return True
        is_between = number < 2 or number >= len(head) - 2
        return is_between and character in " \t\r\n"

    def _plain(self, text: str) -> str:
        if "".join((self._held + text).split()) == "{}":
            self._held += text
            return ""
        self._is_plain = True
        held, self._held = self._held, ""
        return held + text

    def _decoded(self, text: str) -> str:
        out: list[str] = []
        place = 0
        self._rest = ""
        while True:
            quote, escape = text.find('"', place), text.find("\\", place)
            ends = [found for found in (quote, escape) if found >= 0]
            end = min(ends, default=len(text))
            out.append(text[place:end])
            if not ends:
                break
            if end == quote:
                self.is_done = True
                break
            size = _escape_size(text, end)
            if end + size > len(text):
                self._rest = text[end:]
                break
            out.append(_unescaped(text[end : end + size]))
            place = end + size
        return "".join(out)


def _escape_size(text: str, place: int) -> int:
    """Characters of an escape, two of a surrogate pair together; as many as are needed to know."""
    if text[place + 1 : place + 2] != "u":
        return 2
    if text[place + 2 : place + 3] not in ("d", "D") or text[place + 3 : place + 4] not in tuple(
        "89abAB"
    ):
        return 6
    following = text[place + 6 : place + 8]
    return 12 if "\\u".startswith(following) or following == "\\u" else 6


def _unescaped(escape: str) -> str:
    if len(escape) == 2:
        return _SHORT.get(escape[1], escape)
    try:
        text: str = json.loads(f'"{escape}"')
    except ValueError:
        return escape
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
