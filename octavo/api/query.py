"""Options in the URL, read once with every mistake named.

Runs in: API process, event loop. Owns: what words mean true and false.
Knows nothing of: which options there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl

from octavo.api.asgi import Scope
from octavo.errors import InvalidParameter
from octavo.wording import shown

_TRUE_WORDS = frozenset({"1", "true", "t", "yes", "y", "on"})  # as pydantic reads them
_FALSE_WORDS = frozenset({"0", "false", "f", "no", "n", "off"})


def query_of(scope: Scope) -> dict[str, str]:
    """The options of a request; the last of equal names counts."""
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))


def flag(query: Mapping[str, str], name: str) -> bool:
    """A boolean option; False if it is not given.

    Raises:
        InvalidParameter: it is something else.
    """
    word = query.get(name, "false").lower()
    if word not in _TRUE_WORDS | _FALSE_WORDS:
        raise InvalidParameter(f"{name} must be true or false, got {shown(word)}.", param=name)
    return word in _TRUE_WORDS


def choice(query: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """One of `choices`; the first one if it is not given.

    Raises:
        InvalidParameter: it is something else.
    """
    word = query.get(name, choices[0])
    if word not in choices:
        raise InvalidParameter(
            f"{name} must be one of {', '.join(choices)}, got {shown(word)}.", param=name
        )
    return word
