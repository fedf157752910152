"""A regular expression of a text -> one of the same text as JSON has it inside of a string.

A quotation mark becomes its escape, `.` matches characters and escapes. What JSON escapes has one
spelling: the short one where there is one.

Used by: `quoted_lark.py`. Runs in: the API process, in a thread. Owns: the conversion.
Knows nothing of: grammars, requests. The notation: https://docs.rs/regex/latest/regex/#syntax
"""

from __future__ import annotations

import json
import re
import warnings
from typing import Final

#: what JSON escapes inside of strings
SPECIAL: Final = ('"', "\\", *map(chr, range(0x20)))
_PLAIN: Final = r'[^"\\\x00-\x1F]'
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a"}
_CLASSES: Final = "sSDW"
#: Python takes four characters more for spaces
_SPACES: Final = {r"\s": r"\t\n\v\f\r ", r"\S": r"\S\x1c-\x1f"}
_PIECE = re.compile(
    r"""
      \\(?P<category>[pP]\{?\^?(?P<name>[A-Za-z])\w*\}?)
    | \\(?:x\{(?P<braced>[0-9A-Fa-f]{1,6})\}|u\{(?P<wide>[0-9A-Fa-f]{1,6})\}
         |x(?P<two>[0-9A-Fa-f]{2})|u(?P<four>[0-9A-Fa-f]{4}))
    | \\(?P<escaped>.)
    | \(\?(?P<flags>[a-zA-Z-]+)(?P<scope>[:)])
    | (?P<open>\()
    | (?P<close>\))
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_CLASS_ITEM = re.compile(r"\\(?:[pPxu]\{[^}]*\}|.)|[^\\]", re.DOTALL)


class RegexError(ValueError):
    """The expression cannot be converted; the words say why."""


def quoted_regex(pattern: str, *, dot_is_all: bool = False) -> str:
    """The expression of the escaped text.

    Args:
        dot_is_all: the flag `s` holds.

    Raises:
        RegexError: it has what this conversion does not know.
    """
    out: list[str] = []
    dots = [dot_is_all]  # of the groups that are open
    place = 0
    while place < len(pattern):
        if pattern[place] == "[":
            end = _class_end(pattern, place)
            out.append(_quoted_class(pattern[place:end]))
            place = end
            continue
        found = _PIECE.match(pattern, place)
        assert found is not None, "any character is a piece"
        place = found.end()
        if found["flags"]:
            _set_flags(found["flags"], found["scope"], dots)
        elif found["open"]:
            dots.append(dots[-1])
        elif found["close"] and len(dots) > 1:
            dots.pop()
        out.append(_quoted_piece(found, dots[-1]))
    return "".join(out)


def spelled(text: str) -> str:
    """What stands for a text inside of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _quoted_piece(found: re.Match[str], dot_is_all: bool) -> str:
    code = found["braced"] or found["wide"] or found["two"] or found["four"]
    if code:
        return _quoted_character(_character(code), found[0])
    if found["category"]:
        _check_category(found)
        return found[0]
    if found["escaped"]:
        escaped = found["escaped"]
        if escaped in _CLASSES:
            return _quoted_class(f"[{found[0]}]")
        return _quoted_character(_CONTROLS.get(escaped, escaped), found[0])
    if found[0] == "\\":
        raise RegexError("a backslash stands at the end")
    if found[0] == ".":
        return _one_of(_PLAIN, [c for c in SPECIAL if dot_is_all or c != "\n"])
    return _quoted_character(found[0], found[0])


def _character(code: str) -> str:
    number = int(code, 16)
    if number > 0x10FFFF:
        raise RegexError(f"there is no character {code}")
    return chr(number)


def _quoted_character(character: str, written: str) -> str:
    return _one_of("", [character]) if character in SPECIAL else written


def _one_of(plain: str, special: list[str]) -> str:
    """A character of a class or one of some that JSON escapes, whose letters have one case."""
    escapes = [spelled(character)[1:] for character in special]
    short = "".join(escape.replace("\\", "\\\\") for escape in escapes if len(escape) == 1)
    long = "|".join(escape[-2:] for escape in escapes if len(escape) > 1)
    ways = [f"[{short}]"] * bool(short) + [f"u00(?:{long})"] * bool(long)
    escaped = rf"(?-i:\\(?:{'|'.join(ways)}))"
    return f"(?:{plain}|{escaped})" if plain else escaped


def _class_end(pattern: str, begin: int) -> int:
    place = begin + 1 + (pattern[begin + 1 : begin + 2] == "^")
    place += pattern[place : place + 1] == "]"
    while place < len(pattern) and pattern[place] != "]":
        item = _CLASS_ITEM.match(pattern, place)
        if item is None or item[0] == "[" or pattern.startswith(("&&", "--", "~~"), place):
            raise RegexError(f"classes in classes are not supported: {pattern[begin:]}")
        place = item.end()
    if place >= len(pattern):
        raise RegexError(f"a class does not end: {pattern[begin:]}")
    return place + 1


def _quoted_class(text: str) -> str:
    """A class in brackets: its characters that need no escape, and the escapes of the others."""
    known = _class_of_python(text)
    special = [character for character in SPECIAL if known.fullmatch(character)]
    if not special:
        return text
    has_plain = text.startswith("[^") or re.search(r"\\[pPSDW]", text) is not None
    if not has_plain:  # what is in a class is in a range, one end of which is ASCII or written
        candidates = {*map(chr, range(0x20, 0x80)), *known.pattern} - set(SPECIAL)
        has_plain = any(map(known.fullmatch, candidates))
    return _one_of(f"[{text}&&{_PLAIN}]" if has_plain else "", special)


def _class_of_python(text: str) -> re.Pattern[str]:
    """The class for Python, as far as the characters go that JSON escapes."""

    def item(found: re.Match[str]) -> str:
        piece = _PIECE.fullmatch(found[0])
        assert piece is not None
        code = piece["braced"] or piece["wide"] or piece["two"] or piece["four"]
        if code:
            return re.escape(_character(code))
        if piece["category"]:
            _check_category(piece)
            return ""
        return _SPACES.get(found[0], found[0])

    body = text[1 + text.startswith("[^") : -1]
    body = _CLASS_ITEM.sub(item, body)
    if not body:  # categories alone, of which no character is escaped
        body = "\U0010fffd"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            return re.compile(f"[{'^' if text.startswith('[^') else ''}{body}]")
        except re.error as error:
            raise RegexError(f"the class {text} cannot be read: {error}") from None


def _check_category(found: re.Match[str]) -> None:
    """Letters, marks, numbers, symbols and separators have no character that JSON escapes."""
    if found["category"][0] == "P" or "^" in found[0] or found["name"].upper() not in "LMNSZ":
        raise RegexError(f"{found[0]} is not supported")


def _set_flags(flags: str, scope: str, dots: list[bool]) -> None:
    on, _, off = flags.partition("-")
    if set(flags) - set("ismU-"):
        raise RegexError(f"the flags (?{flags}) are not supported")
    value = ("s" in on or dots[-1]) and "s" not in off
    if scope == ":":
        dots.append(value)
    else:
        dots[-1] = value
