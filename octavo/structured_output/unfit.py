"""Says what the grammar library has against a grammar, and in a JSON schema where.

The library names the mistake and not its place. The place is found by asking about the parts: the
part that has the same mistake alone, and no part of which has it.

Runs in: the API process, in a thread. Owns: nothing. Knows nothing of: requests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from octavo.errors import InvalidParameter
from octavo.messages.grammar import Grammar
from octavo.structured_output.backend import GrammarBackend, GrammarError
from octavo.structured_output.json_schema import children

#: parts that are asked about before the whole is blamed
_MAX_QUESTIONS = 200
_WORDS = {
    "oneOf constraints are not supported": (
        "oneOf is supported only where the branches visibly exclude each other: give them "
        "different types, or a required property with a different const; or use anyOf"
    ),
}


def explain(
    backend: GrammarBackend,
    grammar: Grammar,
    field: str,
    schemas: Sequence[tuple[str, Grammar]] = (),
) -> None:
    """Checks a grammar.

    Args:
        field: the field of the request that it comes from.
        schemas: JSON schemas in the grammar with their fields; blamed first.

    Raises:
        InvalidParameter: the library refuses it.
    """
    mistake = _mistake(backend, grammar)
    if mistake is None:
        return
    for origin, schema in schemas:
        explain(backend, schema, origin)
    place = ""
    if grammar.kind == "json":
        place = f" (at {_place(backend, json.loads(grammar.text), mistake) or '/'})"
    for beginning, words in _WORDS.items():
        if mistake.startswith(beginning):
            mistake = words
    raise InvalidParameter(f"{field} cannot be served: {mistake}{place}", param=field)


def _mistake(backend: GrammarBackend, grammar: Grammar) -> str | None:
    try:
        backend.check(grammar)
    except GrammarError as error:
        return str(error).partition(" while processing ")[0]  # the name of a definition
    return None


def _place(backend: GrammarBackend, root: dict[str, Any], mistake: str) -> str:
    definitions = {key: root[key] for key in ("$defs", "definitions") if key in root}
    pointer, schema, num_asked = "", root, 0
    while True:
        for step, child in children(schema):
            num_asked += 1
            if num_asked > _MAX_QUESTIONS:
                return pointer
            if not isinstance(child, dict):
                continue
            alone = Grammar("json", json.dumps({**definitions, **child}, ensure_ascii=False))
            if _mistake(backend, alone) == mistake:
                pointer, schema = pointer + step, child
                break
        else:
            return pointer
