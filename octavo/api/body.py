"""From the bytes of a request to a typed request, once, with every mistake named.

JSON is strict: NaN, Infinity, single quotes and trailing commas are refused. Null means absent, as
clients send it for every option they do not use. Numbers are numbers: a string is not one; a float
with an integral value (5.0) is taken where an integer is wanted, any other float is refused.

Neighbour: `octavo/api/json_cost.py` (what is refused before it is parsed).
Runs in: API process. Owns: the size limit and the wording of validation errors.
Knows nothing of: which requests there are, the engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from octavo.api.asgi import Receive, Scope, header
from octavo.api.json_cost import check_json_cost
from octavo.errors import BodyTooLarge, InvalidParameter
from octavo.wording import printable, shown

MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_LISTED_ERRORS = 10
MAX_SHOWN_REASON = 120
MAX_SEARCHED = 1000
MAX_INTEGER_LEVELS = 3  # no request has a number deeper inside of a field

T = TypeVar("T", bound=msgspec.Struct)

_LOCATION = re.compile(r"^(?P<reason>.*?)(?: - at (?P<place>.*))?$", re.DOTALL)


class ClientDisconnected(Exception):
    """The client went away before its request was complete; there is nobody to answer."""


class Parsed(msgspec.Struct, Generic[T], frozen=True):
    """A request and the names of the top-level fields that nobody knows."""

    request: T
    unknown_fields: list[str]


async def read_json_body(scope: Scope, receive: Receive) -> bytes:
    """Reads the whole body of a JSON request.

    Raises:
        InvalidParameter: the Content-Type is not application/json.
        BodyTooLarge: more than MAX_BODY_BYTES, announced or sent.
        ClientDisconnected: the connection ended first.
    """
    content_type = header(scope, b"content-type") or b""
    if content_type.split(b";", 1)[0].strip().lower() != b"application/json":
        raise InvalidParameter(
            "Unsupported Media Type: Only 'application/json' is allowed", param="Content-Type"
        )
    announced = header(scope, b"content-length")
    if announced is not None and announced.isdigit() and int(announced) > MAX_BODY_BYTES:
        raise _too_large()
    chunks: list[bytes] = []
    num_bytes = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        chunk: bytes = message.get("body", b"")
        num_bytes += len(chunk)
        if num_bytes > MAX_BODY_BYTES:
            raise _too_large()
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks) if len(chunks) > 1 else chunk


def parse_request(
    body: bytes,
    request_type: type[T],
    *,
    also_known: frozenset[str] = frozenset(),
    check_fields: Callable[[Mapping[str, Any]], None] | None = None,
) -> Parsed[T]:
    """Decodes a body into `request_type` (a msgspec struct).

    Args:
        body: the JSON text.
        request_type: what it must be.
        also_known: names without meaning here that need no warning.
        check_fields: sees the decoded object first and may refuse fields.

    Raises:
        InvalidParameter: not JSON, or fields that do not fit, each named with the reason.
    """
    fields = _decode_object(body)
    if check_fields is not None:
        check_fields(fields)
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        request = msgspec.convert(given, request_type, str_keys=True)
    except msgspec.ValidationError:
        request = _convert_field_by_field(given, request_type)
    known = _field_names(request_type)
    return Parsed(request, [n for n in fields if n not in known and n not in also_known])


def _decode_object(body: bytes) -> dict[str, Any]:
    check_json_cost(body)
    try:
        decoded = msgspec.json.decode(body)
    except msgspec.ValidationError as error:  # numbers that no machine holds
        match = _LOCATION.match(str(error))
        assert match is not None
        raise _validation_error([("body", match["reason"])]) from None
    except msgspec.DecodeError as error:
        hint = " (NaN and Infinity are not JSON)" if b"NaN" in body or b"Infinity" in body else ""
        raise _validation_error([("body", f"JSON decode error: {error}{hint}")]) from None
    except RecursionError:
        raise _validation_error([("body", "JSON is nested too deeply")]) from None
    if not isinstance(decoded, dict):
        raise _validation_error([("body", "Input should be a JSON object")])
    return decoded


_field_name_cache: dict[type, frozenset[str]] = {}


def _field_names(request_type: type[msgspec.Struct]) -> frozenset[str]:
    names = _field_name_cache.get(request_type)
    if names is None:
        names = frozenset(f.encode_name for f in msgspec.structs.fields(request_type))
        _field_name_cache[request_type] = names
    return names


def _convert_field_by_field(given: Mapping[str, Any], request_type: type[T]) -> T:
    """The slow way, after a failure: collects every mistake, not only the first."""
    mistakes: list[tuple[str, str]] = []
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(request_type):
        name = field.encode_name
        if name not in given:
            if field.required:
                mistakes.append((name, "Field required"))
            continue
        value = given[name]
        try:
            values[field.name] = _convert_field(value, field.type)
        except msgspec.ValidationError as error:
            mistakes.append(_mistake(name, value, str(error)))
    if mistakes:
        raise _validation_error(mistakes)
    return request_type(**values)


def _convert_field(value: Any, field_type: Any) -> Any:
    try:
        return msgspec.convert(value, field_type, str_keys=True)
    except msgspec.ValidationError:
        return msgspec.convert(_with_integers(value), field_type, str_keys=True)


def _with_integers(value: Any, levels: int = MAX_INTEGER_LEVELS) -> Any:
    """A copy in which floats with integral values are integers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if levels and isinstance(value, list):
        return [_with_integers(item, levels - 1) for item in value]
    if levels and isinstance(value, dict):
        return {key: _with_integers(item, levels - 1) for key, item in value.items()}
    return value


def _mistake(name: str, value: Any, text: str) -> tuple[str, str]:
    if len(text) > MAX_SEARCHED:  # it quotes what was sent
        text = text[: MAX_SEARCHED // 2] + text[-MAX_SEARCHED // 2 :]
    match = _LOCATION.match(text)
    assert match is not None
    place = (match["place"] or "").strip("`")
    # msgspec says `$.a[0]` below the field, "`key` in `$`" for the keys of a mapping
    below = place[1:] if place.startswith("$") else ""
    reason = printable(match["reason"], MAX_SHOWN_REASON)
    if place and not below:
        reason += " as a key"
    return name + below, f"{reason} (got {shown(value)})"


def _validation_error(mistakes: list[tuple[str, str]]) -> InvalidParameter:
    count = len(mistakes)
    listed = "; ".join(f"{name}: {reason}" for name, reason in mistakes[:MAX_LISTED_ERRORS])
    more = "; ..." if count > MAX_LISTED_ERRORS else ""
    plural = "" if count == 1 else "s"
    return InvalidParameter(
        f"{count} validation error{plural}: {listed}{more}", param=mistakes[0][0]
    )


def _too_large() -> BodyTooLarge:
    return BodyTooLarge(f"The request body is larger than {MAX_BODY_BYTES} bytes.")
