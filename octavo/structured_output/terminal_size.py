"""How large the terminals of a Lark grammar become when they are written out.

The library writes a terminal that consists of others out in full before it looks at its size: three
lines of 200 kB become gigabytes, and minutes. So the size is computed here first, from the text.

Runs in: the API process, in a thread. Owns: the limit. Knows nothing of: requests, the library.
"""

from __future__ import annotations

import re

#: characters of one terminal; what the library allows itself later on
MAX_TERMINAL_SIZE = 1_000_000

_PIECE = re.compile(
    r"""
      (?://|\#)[^\n]*                                                       # a comment
    | (?P<text> "(?:\\.|[^"\\\n])*" | /(?:\\.|[^/\\\n])+/ )
    | ^[ \t]*[!?]{0,2}(?P<defined>[A-Za-z_]\w*)(?:\[[^\]\n]*\])?(?:\.-?\d+)?\s*:
    | (?P<used>[A-Za-z_]\w*)
    """,
    re.VERBOSE | re.MULTILINE,
)


def largest_terminal(grammar: str) -> tuple[str, int]:
    """Name and size in characters of the largest terminal, counted up to a little more than the
    limit; an empty name if there is none."""
    own: dict[str, int] = {}
    uses: dict[str, dict[str, int]] = {}
    name = ""
    for piece in _PIECE.finditer(grammar):
        if piece["defined"]:
            name = piece["defined"]
        elif _is_terminal(name):
            if piece["text"]:
                own[name] = own.get(name, 0) + len(piece["text"])
            elif piece["used"]:
                count = uses.setdefault(name, {})
                count[piece["used"]] = count.get(piece["used"], 0) + 1
    sizes: dict[str, int] = {}
    for root in own.keys() | uses.keys():
        _measure(root, own, uses, sizes)
    largest = max(sizes, key=sizes.__getitem__, default="")
    return largest, sizes.get(largest, 0)


def _is_terminal(name: str) -> bool:
    """By its first letter, as in Lark."""
    return name.lstrip("_")[:1].isupper()


def _measure(
    root: str, own: dict[str, int], uses: dict[str, dict[str, int]], sizes: dict[str, int]
) -> None:
    """Fills in the size of a terminal and of all in it. One that uses itself has none; the library
    refuses it."""
    path = [root]
    entered: set[str] = set()
    while path:
        name = path[-1]
        parts = uses.get(name, {})
        missing = [part for part in parts if part not in sizes and part not in entered]
        if name not in entered and missing:
            entered.add(name)
            path += missing
            continue
        path.pop()
        if name not in sizes:
            size = own.get(name, 0) + sum(n * sizes.get(part, 1) for part, n in parts.items())
            sizes[name] = min(max(size, 1), MAX_TERMINAL_SIZE + 1)
