r"""Values of JSON and of Python's literals, read as they come and written as JSON.

`ValueScanner` is a state machine with a stack of its own: a character is looked at once, values
may be cut anywhere and nest as deep as they like. What it has written is JSON as far as it goes.

Line ends and other control characters inside of strings, which models write and JSON forbids, are
written as escapes.

Runs in: API process. Owns: the two notations. Knows nothing of: calls, marks, schemas.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping

import msgspec

_SPACE = re.compile(r"[ \t\r\n]*")
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
    '"': re.compile(r'[^"\\\x00-\x1f]+'),
    "'": re.compile(r"[^'\"\\\x00-\x1f]+"),
}


class State(enum.Enum):
    """What may come next."""

    VALUE = enum.auto()
    FIRST_ITEM = enum.auto()
    FIRST_KEY = enum.auto()
    KEY = enum.auto()
    COLON = enum.auto()
    AFTER = enum.auto()
    STRING = enum.auto()
    ESCAPE = enum.auto()
    NUMBER = enum.auto()
    WORD = enum.auto()
    DONE = enum.auto()
    FAILED = enum.auto()


class ValueScanner:
    """Reads one value.

    Args:
        state, stack: to begin inside of a container; `stack` has the brackets that are open.
    """

    __slots__ = ("_is_key", "_notation", "_owes_comma", "_quote", "_stack", "_token", "state")

    def __init__(
        self, notation: Notation = JSON, state: State = State.VALUE, stack: str = ""
    ) -> None:
        self.state = state
        self._notation = notation
        self._stack = list(stack)
        self._token: list[str] = []
        self._quote = ""
        self._is_key = False
        self._owes_comma = False  # in Python a comma may be the last one

    @property
    def is_done(self) -> bool:
        """The value is complete."""
        return self.state is State.DONE

    @property
    def has_failed(self) -> bool:
        """It is no value."""
        return self.state is State.FAILED

    def scan(self, text: str, position: int, out: list[str]) -> int:
        """Reads on, appends to `out`, and says up to where: the end of `text`, the end of the value
        (`state` is DONE), or the first character that cannot be (FAILED)."""
        while position < len(text):
            match self.state:
                case State.STRING:
                    position = self._string(text, position, out)
                case State.ESCAPE:
                    position = self._escape(text, position, out)
                case State.NUMBER:
                    position = self._number(text, position, out)
                case State.WORD:
                    position = self._word(text, position, out)
                case State.DONE | State.FAILED:
                    break
                case _:
                    position = self._structure(text, position, out)
        return position

    def finish(self, out: list[str]) -> None:
        """The text has ended: a number or a constant may be complete; else the value is not."""
        if self.state is State.NUMBER:
            self._end_number(out)
        elif self.state is State.WORD:
            self._end_word(out)

    def _structure(self, text: str, position: int, out: list[str]) -> int:
        match = _SPACE.match(text, position)
        assert match is not None
        if match.end() > position:
            if not self._notation.is_python:
                out.append(match[0])
            position = match.end()
            if position == len(text):
                return position
        character = text[position]
        state = self.state
        if state is State.AFTER:
            return self._after(character, position, out)
        if state is State.COLON:
            return self._colon(character, position, out)
        if state in (State.FIRST_KEY, State.KEY):
            if character in self._notation.quotes:
                return self._begin_string(character, position, out, is_key=True)
            if state is State.FIRST_KEY or self._notation.is_python:
                return self._close(character, position, out)
            return self._fail(position)
        return self._value(character, position, out)

    def _value(self, character: str, position: int, out: list[str]) -> int:
        notation = self._notation
        if character in notation.quotes:
            return self._begin_string(character, position, out, is_key=False)
        if character in notation.closings:
            self._pay_comma(out)
            self._stack.append(character)
            is_object = character == "{"
            self.state = State.FIRST_KEY if is_object else State.FIRST_ITEM
            out.append("{" if is_object else "[")
            return position + 1
        if character in "-0123456789" or (notation.is_python and character in "+."):
            self._pay_comma(out)
            self.state = State.NUMBER
            return position
        if character.isascii() and character.isalpha():
            self._pay_comma(out)
            self.state = State.WORD
            return position
        can_close = self.state is State.FIRST_ITEM or notation.is_python
        if can_close and self._stack and self._stack[-1] != "{":
            return self._close(character, position, out)
        return self._fail(position)

    def _after(self, character: str, position: int, out: list[str]) -> int:
        if character == ",":
            self.state = State.KEY if self._stack[-1] == "{" else State.VALUE
            if self._notation.is_python:
                self._owes_comma = True
            else:
                out.append(",")
            return position + 1
        return self._close(character, position, out)

    def _close(self, character: str, position: int, out: list[str]) -> int:
        if not self._stack or character != self._notation.closings[self._stack[-1]]:
            return self._fail(position)
        self._owes_comma = False
        self._stack.pop()
        out.append("}" if character == "}" else "]")
        self._end_value()
        return position + 1

    def _colon(self, character: str, position: int, out: list[str]) -> int:
        if character != ":":
            return self._fail(position)
        self.state = State.VALUE
        out.append(": " if self._notation.is_python else ":")
        return position + 1

    def _pay_comma(self, out: list[str]) -> None:
        if self._owes_comma:
            out.append(", ")
            self._owes_comma = False

    def _fail(self, position: int) -> int:
        self.state = State.FAILED
        return position

    def _end_value(self) -> None:
        self.state = State.AFTER if self._stack else State.DONE

    def _begin_string(self, quote: str, position: int, out: list[str], *, is_key: bool) -> int:
        self._pay_comma(out)
        out.append('"')
        self._quote = quote
        self._is_key = is_key
        self.state = State.STRING
        return position + 1

    def _string(self, text: str, position: int, out: list[str]) -> int:
        match = _PLAIN[self._quote].match(text, position)
        if match is not None:
            out.append(match[0])
            position = match.end()
            if position == len(text):
                return position
        character = text[position]
        if character == self._quote:
            out.append('"')
            if self._is_key:
                self.state = State.COLON
            else:
                self._end_value()
        elif character == "\\":
            self.state = State.ESCAPE
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
            out.append(json_escaped("".join(token)) if self._notation.is_python else "".join(token))
            return self._fail(position)
        token.append(character)
        if len(token) == 2 + self._num_digits(token[1]):
            return self._end_escape(position, out)
        return position + 1

    def _num_digits(self, letter: str) -> int:
        if self._notation.is_python:
            return _PYTHON_ESCAPE_DIGITS.get(letter, 0)
        return 4 if letter == "u" else 0

    def _end_escape(self, position: int, out: list[str]) -> int:
        token = "".join(self._token)
        self._token = []
        letter = token[1]
        if not self._notation.is_python:
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
        self.state = State.STRING
        return position + 1

    def _number(self, text: str, position: int, out: list[str]) -> int:
        match = _NUMBER_RUN.match(text, position)
        if match is None:
            self._end_number(out)
            return position
        self._token.append(match[0])
        if not self._notation.is_python:
            out.append(match[0])
        return match.end()

    def _end_number(self, out: list[str]) -> None:
        token = "".join(self._token)
        self._token = []
        is_json = _JSON_NUMBER.fullmatch(token) is not None
        if not self._notation.is_python:
            if is_json:
                self._end_value()
            else:
                self.state = State.FAILED
            return
        if is_json:
            out.append(token)
        elif _PYTHON_NUMBER.fullmatch(token):
            out.append(_json_number(token))
        else:
            out.append(token)
            self.state = State.FAILED
            return
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
        if written is None:
            out.append(word)
            self.state = State.FAILED
        else:
            out.append(written)
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
