"""Choices and grammars of other notations, in the notation of the library.

Runs in: the API process, in a thread. Owns: the conversions. Knows nothing of: requests.
The notation: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from octavo.errors import InvalidParameter
from octavo.structured_output.terminal_size import MAX_TERMINAL_SIZE, largest_terminal
from octavo.wording import first_line, shown

_LARK = re.compile(r"^\s*(%llguidance\b|\??start\b[^:\n]*:)", re.MULTILINE)


#: the library follows at most 2,000 rules at the same time
_MAX_CHOICES_AS_RULES = 1_000


def choice_grammar(choices: Sequence[str]) -> str:
    """One of some texts; many are one terminal, which takes longer to compile when they share long
    beginnings."""
    texts = " | ".join(map(quoted, choices))
    if len(choices) > _MAX_CHOICES_AS_RULES:
        return f"start: CHOICE\nCHOICE: {texts}"
    return f"start: {texts}"


def any_grammar(text: str, field: str) -> str:
    """A context-free grammar as it is, if it is Lark; otherwise it is read as GBNF, the EBNF of
    llama.cpp.

    Raises:
        InvalidParameter: it is neither, or its terminals are too large.
    """
    lark = text if _LARK.search(text) else _gbnf_in_lark(text, field)
    name, size = largest_terminal(lark)
    if size > MAX_TERMINAL_SIZE:
        raise InvalidParameter(
            f"{field}: the terminal {shown(name)} with all that it consists of has more than "
            f"{MAX_TERMINAL_SIZE} characters; make it smaller.",
            param=field,
        )
    return lark


def _gbnf_in_lark(text: str, field: str) -> str:
    # the package costs 100 ms; GBNF is rare
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        return str(gbnf_to_lark(text))
    except Exception as error:  # it raises bare ones
        is_deep = isinstance(error, RecursionError)
        raise InvalidParameter(
            f"{field} is neither Lark (a rule named start) nor GBNF (a rule named root): "
            f"{'it is nested too deeply' if is_deep else first_line(error)}",
            param=field,
        ) from None


def quoted(text: str) -> str:
    """A string of the notation; nothing for an empty one."""
    return json.dumps(text, ensure_ascii=False) if text else ""
