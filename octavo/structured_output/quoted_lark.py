"""A Lark grammar of a text -> rules of the same text as it is written inside of a JSON string.

Texts and regular expressions are those of the escaped text, names get a prefix, so that the rules
can stand among others. What has a meaning for a whole grammar (`%ignore`, ...) is refused.

All that JSON escapes begins with a backslash, and the library reads terminals greedily: one that
can go on with an escape is not followed by another escape (`/[ \\n]+/` before a quotation mark).
What is accepted is always right; such texts are not accepted.

Used by: `structural_tag.py`. Runs in: the API process, in a thread. Owns: the conversion.
Knows nothing of: requests, the library.
The notation: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import json
import re
from typing import Final

from octavo.structured_output.quoted_regex import RegexError, quoted_regex, spelled
from octavo.structured_output.terminal_size import MAX_TERMINAL_SIZE, largest_terminal
from octavo.wording import shown

#: terminals of Lark's library, which may be imported
_COMMON: Final = {
    "DIGIT": "/[0-9]/",
    "HEXDIGIT": "/[0-9A-Fa-f]/",
    "INT": "/[0-9]+/",
    "SIGNED_INT": "/[+-]?[0-9]+/",
    "DECIMAL": r"/[0-9]+\.[0-9]*|\.[0-9]+/",
    "FLOAT": r"/[0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?/",
    "SIGNED_FLOAT": r"/[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)/",
    "NUMBER": r"/([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?/",
    "SIGNED_NUMBER": r"/[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?/",
    "LETTER": "/[A-Za-z]/",
    "LCASE_LETTER": "/[a-z]/",
    "UCASE_LETTER": "/[A-Z]/",
    "WORD": "/[A-Za-z]+/",
    "CNAME": "/[_A-Za-z][_A-Za-z0-9]*/",
    "ESCAPED_STRING": r'/"([^"\\\n]|\\[^\n])*"/',
    "WS": r"/[ \t\f\r\n]+/",
    "WS_INLINE": r"/[ \t]+/",
    "NEWLINE": r"/(\r?\n)+/",
    "CR": r"/\r/",
    "LF": r"/\n/",
}
_PIECE = re.compile(
    r"""
      (?P<comment>//[^\n]*|\#[^\n]*)
    | (?P<range>"(?:\\.|[^"\\\n])*"\s*\.\.\s*"(?:\\.|[^"\\\n])*")
    | (?P<string>"(?:\\.|[^"\\\n])*")(?P<ignores_case>i?)
    | /(?P<regex>(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+)/(?P<flags>[imslux]*)
    | %import\s+common\.(?P<imported>\w+)(?:\s*->\s*(?P<renamed>\w+))?[ \t]*(?=\n|$)
    | (?P<whole>%[a-z]+|<[^<>\s]+>|@\w+|::|->|~(?!\s*[0-9])|(?<=\w)\[)
    | (?P<name>[A-Za-z_]\w*)
    | (?P<other>[\s:|()\[\]*+?!~,{}0-9&-]|\.\.)
    """,
    re.VERBOSE,
)


class LarkError(ValueError):
    """The grammar cannot be converted; the words say why."""


def quoted_lark(text: str, prefix: str) -> tuple[str, list[str]]:
    """The name of the first rule, and all rules.

    Args:
        text: has a rule `start`.
        prefix: begins all names, in small letters.

    Raises:
        LarkError: it has what cannot stand inside of another grammar.
    """
    out: list[str] = []
    place = 0
    while place < len(text):
        found = _PIECE.match(text, place)
        if found is None or found["whole"]:
            what = text[place:].split("\n")[0] if found is None else found["whole"]
            raise LarkError(f"{shown(what)} is not supported in the grammar of a tool")
        place = found.end()
        out.append(_quoted_piece(found, prefix))
    rules = "".join(out)
    start = f"{prefix}start"
    if not re.search(rf"^\s*[?!]*{start}\s*:", rules, re.MULTILINE):
        raise LarkError("a rule named start is missing")
    terminal, size = largest_terminal(rules)
    if size > MAX_TERMINAL_SIZE:
        raise LarkError(
            f"the terminal {shown(terminal)} with all that it consists of has more than "
            f"{MAX_TERMINAL_SIZE} characters"
        )
    return start, rules.splitlines()


def regex_as_lark(pattern: str) -> str:
    """A grammar of the texts that a regular expression matches as a whole."""
    pattern = pattern.removeprefix("^")
    if pattern.endswith("$") and not pattern.endswith("\\$"):
        pattern = pattern[:-1]
    escaped = re.sub(
        r"\\.|/|\n", lambda found: {"/": r"\/", "\n": r"\n"}.get(found[0], found[0]), pattern
    )
    return f"start: /{escaped}/" if escaped else 'start: ""'


def _quoted_piece(found: re.Match[str], prefix: str) -> str:
    if found["comment"]:
        return ""
    if found["string"]:
        return _quoted_string(_decoded(found["string"]), bool(found["ignores_case"]))
    if found["range"]:
        first, last = (_decoded(end.strip()) for end in found["range"].split(".."))
        if len(first) != 1 or len(last) != 1:
            raise LarkError(f"{shown(found[0])} is no range of characters")
        return _regex(f"[{re.escape(first)}-{re.escape(last)}]", "")
    if found["regex"]:
        return _regex(found["regex"], found["flags"])
    if found["imported"]:
        return _imported(found["imported"], found["renamed"], prefix)
    if found["name"]:
        return _prefixed(found["name"], prefix)
    return found[0]


def _prefixed(name: str, prefix: str) -> str:
    """Capital letters make a terminal."""
    return f"{prefix.upper() if name.strip('_')[:1].isupper() else prefix}{name}"


def _decoded(string: str) -> str:
    try:
        text: str = json.loads(string)
    except ValueError:
        raise LarkError(f"{shown(string)} is no text: escapes are those of JSON") from None
    return text


def _quoted_string(text: str, ignores_case: bool) -> str:
    written = spelled(text)
    if ignores_case and written != text:  # letters of escapes have one case
        return _regex(re.escape(text), "i")
    return json.dumps(written, ensure_ascii=False) + "i" * ignores_case


def _regex(pattern: str, flags: str) -> str:
    if set(flags) - set("isu"):
        raise LarkError(f"the flags {flags} of a regular expression are not supported")
    try:
        quoted = quoted_regex(pattern, dot_is_all="s" in flags)
    except RegexError as error:
        raise LarkError(f"in /{shown(pattern)[1:-1]}/: {error}") from None
    return f"/{quoted}/{'i' * ('i' in flags)}"


def _imported(name: str, renamed: str | None, prefix: str) -> str:
    if name not in _COMMON:
        raise LarkError(f"common.{name} cannot be imported; there are {', '.join(_COMMON)}")
    return f"{_prefixed(renamed or name, prefix)}: {_regex(_COMMON[name][1:-1], '')}"
