"""Text a model wrote for a value -> JSON, by what the tool's schema asks for.

The order of the attempts is vLLM's: null, integer, number, boolean, object, array, string.

Runs in: API process. Knows nothing of: calls, marks.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from octavo.api.parsing.values import JSON, PYTHON, ValueScanner

_MAX_REFERENCES = 8
_INTEGER = re.compile(r"[-+]?[0-9]+(?:\.0*)?")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_MAX_DIGITS = 400
#: names of types that schemas have although JSON schema has not
_TYPE_NAMES = {
    "str": "string", "text": "string", "int": "integer", "long": "integer", "float": "number",
    "double": "number", "bool": "boolean", "dict": "object", "list": "array", "tuple": "array",
    "none": "null",
}  # fmt: skip


def parameter_types(parameters: Any, name: str) -> frozenset[str]:
    """Types that a parameter of a tool may have; nothing if the schema does not tell.

    Args:
        parameters: the JSON schema of the tool's parameters, as it came.
    """
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    schema = properties.get(name) if isinstance(properties, Mapping) else None
    return frozenset(_types(schema, parameters, _MAX_REFERENCES))


def _types(schema: Any, root: Any, depth: int) -> set[str]:
    if not isinstance(schema, Mapping) or depth == 0:
        return set()
    types: set[str] = set()
    declared = schema.get("type")
    for one in declared if isinstance(declared, list) else [declared]:
        if isinstance(one, str):
            types.add(_TYPE_NAMES.get(one.lower(), one.lower()))
    if schema.get("nullable") is True:
        types.add("null")
    if not types:
        values = schema.get("enum")
        values = [*values] if isinstance(values, list) else []
        if "const" in schema:
            values.append(schema["const"])
        types.update(map(_type_of, values))
    for key in ("anyOf", "oneOf", "allOf"):
        branches = schema.get(key)
        for branch in branches if isinstance(branches, list) else []:
            types |= _types(branch, root, depth - 1)
    reference = schema.get("$ref")
    if isinstance(reference, str):
        types |= _types(_referenced(reference, root), root, depth - 1)
    return types


def _referenced(reference: str, root: Any) -> Any:
    if not reference.startswith("#/"):
        return None
    found = root
    for step in reference[2:].split("/"):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if value is None:
        return "null"
    for kind, name in ((str, "string"), (int, "integer"), (float, "number"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"


def json_of(text: str, types: frozenset[str]) -> str:
    """The text as JSON of one of the types; as a string if it is of none."""
    for name, read in _READERS:
        if name in types:
            written = read(text)
            if written is not None:
                return written
    return json.dumps(text, ensure_ascii=False)


def _null(text: str) -> str | None:
    return "null" if text.strip().lower() in ("null", "none") else None


def _integer(text: str) -> str | None:
    text = text.strip()
    if not _INTEGER.fullmatch(text) or len(text) > _MAX_DIGITS:
        return None
    return str(int(text.partition(".")[0]))


def _number(text: str) -> str | None:
    text = text.strip()
    if not _NUMBER.fullmatch(text) or len(text) > _MAX_DIGITS:
        return None
    if _INTEGER.fullmatch(text) and "." not in text:
        return str(int(text))
    number = float(text)
    return json.dumps(number) if math.isfinite(number) else None


def _boolean(text: str) -> str | None:
    return {"true": "true", "1": "true", "false": "false", "0": "false"}.get(text.strip().lower())


def _container(bracket: str) -> Callable[[str], str | None]:
    def read(text: str) -> str | None:
        text = text.strip()
        if not text.startswith(bracket):
            return None
        for notation in (JSON, PYTHON):
            scanner = ValueScanner(notation)
            out: list[str] = []
            if scanner.scan(text, 0, out) == len(text) and scanner.is_done:
                return "".join(out)
        return None

    return read


_READERS: tuple[tuple[str, Callable[[str], str | None]], ...] = (
    ("null", _null),
    ("integer", _integer),
    ("number", _number),
    ("boolean", _boolean),
    ("object", _container("{")),
    ("array", _container("[")),
)
