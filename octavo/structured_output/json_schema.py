"""JSON schemas: is every keyword one that can be kept, and how the grammar library must see them.

The library says what it cannot do, but not where; this walk names the place as a JSON pointer
(RFC 6901), and refuses what the library would take and not keep. Nothing of a schema that
constrains is dropped: it is enforced, or the request is refused.

Runs in: the API process, in a thread. Owns: the list of keywords.
Knows nothing of: the library's interface, requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from octavo.errors import InvalidParameter
from octavo.wording import shown

MAX_NESTING = 64
#: between two tokens of JSON; what a model that has nothing to say would fill its output with
MAX_WHITESPACE = 8
_WHITESPACE = rf"[\x20\x0A\x0D\x09]{{1,{MAX_WHITESPACE}}}"

_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")  # name -> schema
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMAS = ("items", "additionalItems", "additionalProperties")

#: keywords that cannot be kept -> values that ask for nothing
_UNSUPPORTED: dict[str, Callable[[Any], bool]] = {
    "not": lambda value: value is False,
    "if": lambda value: False,
    "then": lambda value: value in (True, {}),
    "else": lambda value: value in (True, {}),
    "dependentRequired": lambda value: value == {},
    "dependentSchemas": lambda value: value == {},
    "dependencies": lambda value: value == {},
    "propertyNames": lambda value: value in (True, {}, {"type": "string"}),
    "contains": lambda value: False,
    "minContains": lambda value: value == 0,
    "maxContains": lambda value: False,
    "uniqueItems": lambda value: value is False,
    "unevaluatedItems": lambda value: value in (True, {}),
    "unevaluatedProperties": lambda value: value in (True, {}),
    "$dynamicRef": lambda value: False,
    "$recursiveRef": lambda value: False,
    "x-guidance": lambda value: False,
}
_IN_PLACE = frozenset(("allOf", "anyOf", "oneOf", "$ref"))
_REMARKS = ("title", "description", "$comment")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
#: formats of strings that are kept; others are remarks, as the specification has it
_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
)


class SchemaError(InvalidParameter):
    """A schema that cannot be served; `pointer` says where."""

    def __init__(self, sentence: str, pointer: str) -> None:
        super().__init__(f"{sentence} (at {pointer or '/'})")
        self.pointer = pointer


def prepare_schema(
    schema: Any, *, allows_whitespace: bool, whitespace_pattern: str | None, is_closed: bool
) -> dict[str, Any]:
    """A checked copy of `schema` as the library reads it.

    Args:
        allows_whitespace: between tokens of JSON.
        whitespace_pattern: what may stand there; None: up to 8 spaces, tabs and line ends.
        is_closed: objects whose schema lists properties have no others, unless it says so.

    Raises:
        SchemaError: a keyword cannot be kept, or has a wrong value.
    """
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        if schema is False:
            raise SchemaError("The schema false allows nothing", "")
        raise SchemaError(f"A JSON schema must be an object, got {shown(schema)}", "")
    _check_nesting(schema)
    prepared = _Walk(schema, is_closed).copy(schema, "")
    if not allows_whitespace:
        prepared["x-guidance"] = {"whitespace_flexible": False}
    else:
        prepared["x-guidance"] = {"whitespace_pattern": whitespace_pattern or _WHITESPACE}
    return prepared


def children(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas right inside a schema, with their pointers from it."""
    for key in _MAPS:
        named = schema.get(key)
        if isinstance(named, dict):
            yield from ((f"/{key}/{_escaped(name)}", child) for name, child in named.items())
    for key in _LISTS:
        listed = schema.get(key)
        if isinstance(listed, list):
            yield from ((f"/{key}/{index}", child) for index, child in enumerate(listed))
    for key in _SCHEMAS:
        child = schema.get(key)
        if isinstance(child, list):  # items of old drafts
            yield from ((f"/{key}/{index}", each) for index, each in enumerate(child))
        elif child is not None:
            yield f"/{key}", child


class _Walk:
    """Copies a schema and checks it on the way.

    Args:
        root: what references are about.
        is_closed: see `prepare_schema`.
    """

    def __init__(self, root: dict[str, Any], is_closed: bool) -> None:
        self._root = root
        self._is_closed = is_closed

    def copy(self, schema: Any, pointer: str) -> dict[str, Any]:
        copied: dict[str, Any] = {}
        for key, value in schema.items():
            if key in _UNSUPPORTED:
                self._refuse(schema, key, pointer)
            elif key in _MAPS:
                _must(isinstance(value, dict), key, value, "an object of schemas", pointer)
                copied[key] = {
                    name: self._child(child, f"{pointer}/{key}/{_escaped(name)}")
                    for name, child in value.items()
                }
            elif key in _LISTS:
                copied[key] = self._list(key, value, pointer)
            elif key in _SCHEMAS:
                if key == "items" and isinstance(value, list):
                    copied[key] = self._list(key, value, pointer)
                else:
                    copied[key] = self._child(value, f"{pointer}/{key}")
            else:
                _check_value(schema, key, value, pointer)
                if key == "$ref":
                    self._target(value, pointer)
                if key != "format" or value in _FORMATS:
                    copied[key] = value
        if (
            self._is_closed
            and "additionalProperties" not in copied
            and ("properties" in copied or "patternProperties" in copied)
        ):
            copied["additionalProperties"] = False
        return copied

    def _child(self, child: Any, pointer: str) -> Any:
        if isinstance(child, bool):
            return child
        if not isinstance(child, dict):
            raise SchemaError(
                f"A schema must be an object, true or false, got {shown(child)}", pointer
            )
        return self.copy(child, pointer)

    def _list(self, key: str, value: Any, pointer: str) -> list[Any]:
        is_list = isinstance(value, list) and (value or key in ("items", "prefixItems"))
        _must(bool(is_list), key, value, "a list of schemas", pointer)
        copied = [self._child(each, f"{pointer}/{key}/{i}") for i, each in enumerate(value)]
        if key == "oneOf":
            # the library sees that branches exclude each other only if they are spelled out
            copied = [
                self._spelled_out(each, f"{pointer}/{key}/{i}") for i, each in enumerate(copied)
            ]
        return copied

    def _spelled_out(self, branch: Any, pointer: str) -> Any:
        if not isinstance(branch, dict) or "$ref" not in branch:
            return branch
        reference = branch["$ref"]
        target = self._target(reference, pointer)
        if not set(branch) <= {"$ref", *_REMARKS} or not isinstance(target, dict):
            return branch
        if not _IN_PLACE.isdisjoint(target):
            return branch
        # one level of it: what is further in stays where it is, or recursion would have no end
        shallow = {key: value for key, value in target.items() if key not in _UNSUPPORTED}
        for key in _MAPS:
            if isinstance(target.get(key), dict):
                shallow[key] = {
                    name: _referred(child, f"{reference}/{key}/{_escaped(name)}")
                    for name, child in target[key].items()
                }
        for key in _SCHEMAS:
            if key in target:
                shallow[key] = _referred(target[key], f"{reference}/{key}")
        return self.copy(shallow, pointer)

    def _target(self, reference: str, pointer: str) -> Any:
        """What a reference into the schema is about; None: one by name, which the library knows."""
        if not reference.startswith("#"):
            if "://" in reference or reference.startswith(("file:", "urn:")):
                raise SchemaError(
                    f"$ref {shown(reference)} is outside of the schema, and nothing is fetched: "
                    "put it under $defs",
                    f"{pointer}/$ref",
                )
            return None
        target: Any = self._root
        if reference[1:] and not reference.startswith("#/"):
            return None  # an anchor
        for part in reference[2:].split("/") if reference[1:] else ():
            name = _unquoted(part)
            if isinstance(target, dict) and name in target:
                target = target[name]
            elif isinstance(target, list) and name.isdecimal() and int(name) < len(target):
                target = target[int(name)]
            else:
                raise SchemaError(
                    f"$ref {shown(reference)} leads nowhere: there is no {shown(name)}",
                    f"{pointer}/$ref",
                )
        return target

    def _refuse(self, schema: dict[str, Any], key: str, pointer: str) -> None:
        asks_nothing = _UNSUPPORTED[key](schema[key])
        if key == "if":
            asks_nothing = "then" not in schema and "else" not in schema
        elif key in ("then", "else"):
            asks_nothing = asks_nothing or "if" not in schema
        elif key in ("minContains", "maxContains"):
            asks_nothing = "contains" not in schema
        if not asks_nothing:
            raise SchemaError(
                f"The JSON schema keyword {key!r} is not supported in structured output",
                f"{pointer}/{key}",
            )


def _referred(schema: Any, reference: str) -> Any:
    """A schema, or a reference to it if it has others inside."""
    is_simple = not isinstance(schema, dict) or (
        _IN_PLACE.isdisjoint(schema) and next(children(schema), None) is None
    )
    return schema if is_simple else {"$ref": reference}


def _check_value(schema: dict[str, Any], key: str, value: Any, pointer: str) -> None:
    """Values of the keywords that are no schemas."""
    match key:
        case "type":
            kinds = value if isinstance(value, list) and value else [value]
            for kind in kinds:
                _must(kind in _TYPES, key, kind, f"one of {', '.join(_TYPES)}", pointer)
        case "required":
            is_names = isinstance(value, list) and all(isinstance(name, str) for name in value)
            _must(is_names, key, value, "a list of names", pointer)
        case "enum":
            _must(isinstance(value, list) and value != [], key, value, "a list of values", pointer)
        case "pattern" | "format" | "$ref":
            _must(isinstance(value, str), key, value, "a string", pointer)
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
            is_old = key.startswith("exclusive") and isinstance(value, bool)
            _must(not is_old, key, value, "a number (true and false are of old drafts)", pointer)
            _must(isinstance(value, int | float), key, value, "a number", pointer)
        case "multipleOf":
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            _must(is_number and value > 0, key, value, "a positive number", pointer)
        case _ if key in _COUNTS:
            is_count = isinstance(value, int | float) and not isinstance(value, bool)
            is_count = is_count and value >= 0 and value == int(value)
            _must(is_count, key, value, "a whole number of at least 0", pointer)
            if key == "minProperties" and value > max(len(schema.get("required", ())), 1):
                # a key may come twice, and counts once
                raise SchemaError(
                    f"minProperties of {value} cannot be kept: list that many names in required",
                    f"{pointer}/{key}",
                )
        case _:
            pass  # a remark, or a keyword of somebody's own


def _must(is_right: bool, key: str, value: Any, rule: str, pointer: str) -> None:
    if not is_right:
        raise SchemaError(f"{key} must be {rule}, got {shown(value)}", f"{pointer}/{key}")


def _check_nesting(schema: Any) -> None:
    level, depth = [schema], 0
    while level:
        depth += 1
        if depth > MAX_NESTING:
            raise SchemaError(f"The JSON schema is nested more than {MAX_NESTING} deep", "")
        inner: list[Any] = []
        for value in level:
            parts = value.values() if isinstance(value, dict) else value
            inner += [part for part in parts if isinstance(part, dict | list)]
        level = inner


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _unquoted(part: str) -> str:
    from urllib.parse import unquote  # rarely needed

    return unquote(part).replace("~1", "/").replace("~0", "~")
