"""`Endpoint`: a handler with its errors turned into answers; `Operation`: a route and what
`/openapi.json` says of it, in one place.

Runs in: API process, event loop. Owns: what happens to an exception that leaves a handler.
Knows nothing of: what the handlers do.
"""

from __future__ import annotations

import secrets

import msgspec

from octavo.api.asgi import Handler, Receive, Scope, Send, header
from octavo.api.body import ClientDisconnected
from octavo.api.errors import log_error, send_error
from octavo.errors import RequestError

MAX_REQUEST_ID_LENGTH = 128


#: what the document says of a body: nothing, a type, or one of several
Described = type | tuple[type, ...] | None


class QueryParam(msgspec.Struct, frozen=True):
    """An option in the URL: a boolean, or one of `choices`; the first one is the default."""

    description: str
    choices: tuple[str, ...] = ()


class Operation(msgspec.Struct, frozen=True):
    """One route. `request`, `response` and `event` are msgspec types for the document, several in
    a tuple are alternatives; a string response is a media type without schema."""

    methods: tuple[str, ...]
    path: str
    handler: Handler
    summary: str
    tag: str
    request: Described = None
    response: Described | str = None
    event: Described = None  # of the stream, if the route can stream
    errors: tuple[type[BaseException], ...] = ()
    is_open: bool = False  # needs no key
    path_params: dict[str, str] = {}  # name -> description
    query_params: dict[str, QueryParam] = {}
    is_documented: bool = True
    needs_body: bool = True  # False: `request` may be left out


def types_of(described: Described | str) -> tuple[type, ...]:
    """The alternatives; none for nothing and for a mere media type."""
    if described is None or isinstance(described, str):
        return ()
    return described if isinstance(described, tuple) else (described,)


def request_id(scope: Scope) -> str:
    """The request's id: given by the client in `X-Request-Id`, else random; the same at each call.

    Characters that could forge log lines or headers are dropped.
    """
    known: str | None = scope.get("octavo.request_id")
    if known is None:
        given = header(scope, b"x-request-id")
        known = _clean(given.decode("latin-1")) if given else ""
        known = known or secrets.token_hex(16)
        scope["octavo.request_id"] = known
    return known


def _clean(text: str) -> str:
    return "".join(c for c in text if c.isascii() and c.isprintable())[:MAX_REQUEST_ID_LENGTH]


class Endpoint:
    """An ASGI application around a handler: an exception becomes the error response.

    A handler that has begun its response reports errors in it and raises nothing. Layers further
    out find the route's path in `scope["octavo.route"]`.
    """

    def __init__(self, handler: Handler, path: str, *, log_stack: bool = False) -> None:
        self._handler = handler
        self._path = path
        self._log_stack = log_stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["octavo.route"] = self._path
        try:
            await self._handler(scope, receive, send)
        except ClientDisconnected:
            return
        except Exception as error:
            log_error(
                error,
                request_id(scope),
                with_stack=self._log_stack and not isinstance(error, RequestError),
            )
            await send_error(send, error)
