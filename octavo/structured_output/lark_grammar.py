"""Choices and grammars of other notations, in the notation of the library.

Runs in: the API process, in a thread. Owns: the conversions. Knows nothing of: requests.
The notation: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from octavo.errors import InvalidParameter
from octavo.wording import first_line

_LARK = re.compile(r"^\s*(%llguidance\b|\??start\b[^:\n]*:)", re.MULTILINE)


def choice_grammar(choices: Sequence[str]) -> str:
    """One of some texts."""
    return "start: " + " | ".join(map(quoted, choices))


def any_grammar(text: str, field: str) -> str:
    """A context-free grammar as it is, if it is Lark; otherwise it is read as GBNF, the EBNF of
    llama.cpp.

    Raises:
        InvalidParameter: it is neither.
    """
    if _LARK.search(text):
        return text
    # the package costs 100 ms; GBNF is rare
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        return str(gbnf_to_lark(text))
    except Exception as error:  # it raises bare ones
        raise InvalidParameter(
            f"{field} is neither Lark (a rule named start) nor GBNF (a rule named root): "
            f"{first_line(error)}",
            param=field,
        ) from None


def quoted(text: str) -> str:
    """A string of the notation; nothing for an empty one."""
    return json.dumps(text, ensure_ascii=False) if text else ""
