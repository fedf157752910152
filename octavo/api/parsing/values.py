r"""Values of JSON and of Python's literals, read as they come and written as JSON.

`ValueScanner` is a state machine with a stack of its own: a character is looked at once, values
may be cut anywhere and nest as deep as they like. What it has written is JSON as far as it goes.

Line ends and other control characters inside of strings, which models write and JSON forbids, are
written as escapes.

Runs in: API process. Owns: the two notations. Knows nothing of: calls, marks, schemas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

import msgspec

_SPACE = re.compile(r"[ \t\r\n]*")
_OPENINGS = re.compile(r"\[+|\(+")
_WORD = re.compile(r"[A-Za-z_]+")
_NUMBER_RUN = re.compile(r"[-+0-9.eE]+")
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_PYTHON_NUMBER = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_PYTHON_ESCAPE_DIGITS = {"x": 2, "u": 4, "U": 8}
_PYTHON_ESCAPES = {
    "\n": "", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "n": "\n",
    "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip
_LONGEST_WORD = 5


class Notation(msgspec.Struct, frozen=True):
    """A way to write values.

    Attributes:
        word_to_json: constants.
        closings: brackets that open a container to those that end it.
        is_python: strings and numbers as in Python, commas may trail.
    """

    quotes: str
    word_to_json: Mapping[str, str]
    closings: Mapping[str, str]
    is_python: bool = False


JSON = Notation(
    quotes='"',
    word_to_json={"true": "true", "false": "false", "null": "null"},
    closings={"{": "}", "[": "]"},
)
PYTHON = Notation(
    quotes="\"'",
    word_to_json={
        "True": "true", "False": "false", "None": "null",
        "true": "true", "false": "false", "null": "null",
    },
    closings={"{": "}", "[": "]", "(": ")"},
    is_python=True,
)  # fmt: skip

_PLAIN = {
    '"': re.compile(r'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])+'),
    "'": re.compile(r"[^'\"\\\x00-\x1f]+"),
}
_PYTHON_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')


class ValueScanner:
    """Reads one value; see the module."""

    __slots__ = (
        "_is_key", "_is_python", "_notation", "_owes_comma", "_plain", "_quote", "_stack", "_step",
        "_token", "has_failed", "is_done",
    )  # fmt: skip

    def __init__(self, notation: Notation = JSON) -> None:
        self.is_done = False
        self.has_failed = False
        self._notation = notation
        self._is_python = notation.is_python
        self._step: Callable[[str, int, list[str]], int] = self._value
        self._stack: list[str] = []
        self._token: list[str] = []
        self._quote = ""
        self._plain = _PYTHON_PLAIN
        self._is_key = False
        self._owes_comma = False  # in Python a comma may be the last one

    def scan(self, text: str, position: int, out: list[str]) -> int:
        """Reads on, appends to `out`, and says up to where: the end of `text`, the end of the value
        (`is_done`), or the first character that cannot be (`has_failed`)."""
        end = len(text)
        while position < end and not (self.is_done or self.has_failed):
            position = self._step(text, position, out)
        return position

    def finish(self, out: list[str]) -> None:
        """The text has ended: a number or a constant may be complete; else the value is not."""
        if self._step == self._number:
            self._end_number(out)
        elif self._step == self._word:
            self._end_word(out)

    # --- between the parts of a container

    def _space(self, text: str, position: int, out: list[str]) -> int:
        match = _SPACE.match(text, position)
        assert match is not None
        if match.end() > position and not self._is_python:
            out.append(match[0])
        return match.end()

    def _value(self, text: str, position: int, out: list[str]) -> int:
        position = self._space(text, position, out)
        if position == len(text):
            return position
        character = text[position]
        if character in self._notation.quotes:
            return self._begin_string(character, position, out, is_key=False)
        if character in self._notation.closings:
            return self._begin_container(text, position, out)
        if character in "-0123456789" or (self._is_python and character in "+."):
            self._pay_comma(out)
            self._step = self._number
            return position
        if character.isascii() and character.isalpha():
            self._pay_comma(out)
            self._step = self._word
            return position
        if self._is_python and self._stack and self._stack[-1] != "{":
            return self._close(character, position, out)
        return self._fail(position)

    def _begin_container(self, text: str, position: int, out: list[str]) -> int:
        character = text[position]
        self._pay_comma(out)
        if character == "{":
            self._stack.append(character)
            self._step = self._first_key
            out.append("{")
            return position + 1
        match = _OPENINGS.match(text, position)
        assert match is not None
        self._stack.extend(match[0])
        self._step = self._first_item
        out.append("[" * len(match[0]))
        return match.end()

    def _first_item(self, text: str, position: int, out: list[str]) -> int:
        position = self._space(text, position, out)
        if position == len(text):
            return position
        if text[position] in ")]":
            return self._close(text[position], position, out)
        self._step = self._value
        return position

    def _first_key(self, text: str, position: int, out: list[str]) -> int:
        position = self._space(text, position, out)
        if position == len(text):
            return position
        if text[position] == "}":
            return self._close("}", position, out)
        self._step = self._key
        return position

    def _key(self, text: str, position: int, out: list[str]) -> int:
        position = self._space(text, position, out)
        if position == len(text):
            return position
        character = text[position]
        if character in self._notation.quotes:
            return self._begin_string(character, position, out, is_key=True)
        if self._is_python:
            return self._close(character, position, out)
        return self._fail(position)

    def _colon(self, text: str, position: int, out: list[str]) -> int:
        position = self._space(text, position, out)
        if position == len(text):
            return position
        if text[position] != ":":
            return self._fail(position)
        self._step = self._value
        out.append(": " if self._is_python else ":")
        return position + 1

    def _after(self, text: str, position: int, out: list[str]) -> int:
        position = self._space(text, position, out)
        if position == len(text):
            return position
        if text[position] != ",":
            return self._close(text[position], position, out)
        self._step = self._key if self._stack[-1] == "{" else self._value
        if self._is_python:
            self._owes_comma = True
        else:
            out.append(",")
        return position + 1

    def _pay_comma(self, out: list[str]) -> None:
        if self._owes_comma:
            out.append(", ")
            self._owes_comma = False

    def _close(self, character: str, position: int, out: list[str]) -> int:
        if not self._stack or character != self._notation.closings[self._stack[-1]]:
            return self._fail(position)
        self._owes_comma = False
        self._stack.pop()
        out.append("}" if character == "}" else "]")
        self._end_value()
        return position + 1

    def _fail(self, position: int) -> int:
        self.has_failed = True
        return position

    def _end_value(self) -> None:
        if self._stack:
            self._step = self._after
        else:
            self.is_done = True

    # --- strings

    def _begin_string(self, quote: str, position: int, out: list[str], *, is_key: bool) -> int:
        self._pay_comma(out)
        out.append('"')
        self._quote = quote
        self._plain = _PYTHON_PLAIN if self._is_python and quote == '"' else _PLAIN[quote]
        self._is_key = is_key
        self._step = self._string
        return position + 1

    def _string(self, text: str, position: int, out: list[str]) -> int:
        match = self._plain.match(text, position)
        if match is not None:
            out.append(match[0])
            position = match.end()
            if position == len(text):
                return position
        character = text[position]
        if character == self._quote:
            out.append('"')
            if self._is_key:
                self._step = self._colon
            else:
                self._end_value()
        elif character == "\\":
            self._step = self._escape
            self._token = ["\\"]
        else:  # a control character, or the other quote
            out.append(json_escaped(character))
        return position + 1

    def _escape(self, text: str, position: int, out: list[str]) -> int:
        """One more character of an escape; writes it once it is whole."""
        character = text[position]
        token = self._token
        if len(token) == 1:
            token.append(character)
            if self._num_digits(character) == 0:
                return self._end_escape(position, out)
            return position + 1
        if character not in "0123456789abcdefABCDEF":
            out.append(json_escaped("".join(token)) if self._is_python else "".join(token))
            return self._fail(position)
        token.append(character)
        if len(token) == 2 + self._num_digits(token[1]):
            return self._end_escape(position, out)
        return position + 1

    def _num_digits(self, letter: str) -> int:
        if self._is_python:
            return _PYTHON_ESCAPE_DIGITS.get(letter, 0)
        return 4 if letter == "u" else 0

    def _end_escape(self, position: int, out: list[str]) -> int:
        token = "".join(self._token)
        self._token = []
        letter = token[1]
        if not self._is_python:
            out.append(token)
            if letter not in '"\\/bfnrtu':
                return self._fail(position + 1)
        elif letter in _PYTHON_ESCAPE_DIGITS:
            code = int(token[2:], 16)
            if code > 0x10FFFF:
                return self._fail(position + 1)
            out.append(_json_character(code))
        else:
            out.append(json_escaped(_PYTHON_ESCAPES.get(letter, token)))
        self._step = self._string
        return position + 1

    # --- numbers and constants

    def _number(self, text: str, position: int, out: list[str]) -> int:
        match = _NUMBER_RUN.match(text, position)
        if match is None:
            self._end_number(out)
            return position
        self._token.append(match[0])
        if not self._is_python:
            out.append(match[0])
        return match.end()

    def _end_number(self, out: list[str]) -> None:
        token = "".join(self._token)
        self._token = []
        is_json = _JSON_NUMBER.fullmatch(token) is not None
        if self._is_python:
            is_python = is_json or _PYTHON_NUMBER.fullmatch(token) is not None
            out.append(_json_number(token) if is_python and not is_json else token)
            self.has_failed = not is_python
        else:
            self.has_failed = not is_json
        if not self.has_failed:
            self._end_value()

    def _word(self, text: str, position: int, out: list[str]) -> int:
        match = _WORD.match(text, position)
        if match is None:
            self._end_word(out)
            return position
        room = _LONGEST_WORD + 1 - sum(map(len, self._token))
        word = match[0][:room]
        self._token.append(word)
        if len(word) == room:
            self._end_word(out)
        return position + len(word)

    def _end_word(self, out: list[str]) -> None:
        word = "".join(self._token)
        self._token = []
        written = self._notation.word_to_json.get(word)
        out.append(word if written is None else written)
        if written is None:
            self.has_failed = True
        else:
            self._end_value()


def json_escaped(text: str) -> str:
    """Text as it stands inside of a string of JSON."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _json_character(code: int) -> str:
    """Halves of surrogate pairs as escapes: they are no characters."""
    if 0xD800 <= code < 0xE000:
        return f"\\u{code:04x}"
    return json_escaped(chr(code))


def _json_number(token: str) -> str:
    """A number of Python that JSON writes otherwise: +1, 1., .5"""
    sign = "-" if token.startswith("-") else ""
    digits = token.lstrip("+-")
    mantissa, marker, exponent = digits.replace("E", "e").partition("e")
    whole, point, fraction = mantissa.partition(".")
    after_point = f".{fraction or '0'}" if point else ""
    return f"{sign}{whole or '0'}{after_point}{marker}{exponent}"
