"""What an attacker or a broken client puts in place of a value, as hypothesis strategies.

`values_for(schema)` reads a JSON schema as `/openapi.json` has it: half of its values fit, half are
hostile. Values are Python objects for `hostile_json`, which writes NaN, Infinity and lone
surrogates as a careless client would.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

INTEGERS = [
    -(2**64), -(2**63) - 1, -(2**63), -(2**31) - 1, -1, 0, 1, 2, 255, 257, 258, 2**31 - 1, 2**31,
    2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, 10**400,
]  # fmt: skip
NUMBERS = [
    -1e308, -1.0, -1e-320, -0.0, 0.0, 5e-324, 1e-9, 0.5, 1.0, 1.5, 2.0, 1e18, 2.0**63, 2.0**64,
    1e300, 1.7976931348623157e308, float("inf"), float("-inf"), float("nan"),
]  # fmt: skip
TEXTS = [
    "", " ", "a", "\0", "\n", "\r\nx-evil: 1", "\x7f", "\ufeff", "\ud800", "a\udc00b",
    "\U0010ffff", "\u202e", "<|im_start|>", "<|im_end|>", "{{ 7 * 7 }}",
    "{% raise_exception('x') %}", "none", "auto", "NaN", "1", "../../etc/passwd", "%s%n",
    "x" * 5000,
]  # fmt: skip
KEYS = ["", "self", "messages", "__class__", "0", "-1", "1e3", "99999999999999999999", "NaN", "\0"]

_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(INTEGERS),
    st.sampled_from(NUMBERS),
    st.sampled_from(TEXTS),
    st.integers(),
    st.text(max_size=8),
)
_keys = st.one_of(st.sampled_from(KEYS), st.text(max_size=4))


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if levels % 2 else {"a": value}
    return value


#: anything JSON or almost-JSON can say
hostile = st.one_of(
    _scalars,
    st.recursive(
        _scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_keys, inner, max_size=3),
        max_leaves=8,
    ),
    st.builds(_nested, st.sampled_from([20, 101, 400, 401, 900])),
)


def values_for(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Values for a field: fitting and hostile ones, mixed at every level.

    Args:
        schema: of the field.
        schemas: what `$ref` means (`components/schemas`).
    """
    return st.one_of(_fitting(schema, schemas), hostile)


def _fitting(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return _fitting(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "anyOf" in schema:
        return st.one_of([_fitting(option, schemas) for option in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    match schema.get("type"):
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(-2, 8)
        case "number":
            return st.one_of(st.floats(-2.5, 2.5), st.integers(-2, 3))
        case "string":
            return st.one_of(st.text(max_size=6), st.sampled_from(TEXTS))
        case "array":
            return st.lists(values_for(schema.get("items", {}), schemas), max_size=3)
        case "object":
            names = schema.get("properties")
            if names:
                return st.fixed_dictionaries(
                    {}, optional={name: values_for(s, schemas) for name, s in names.items()}
                )
            return st.dictionaries(
                st.one_of(st.integers(-1, 300).map(str), _keys),
                values_for(schema.get("additionalProperties") or {}, schemas),
                max_size=3,
            )
    return hostile


def hostile_json(value: Any) -> bytes:
    """JSON text; NaN and Infinity are written as such, surrogates as escapes."""
    return json.dumps(value).encode()
