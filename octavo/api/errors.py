"""The one table from error class to HTTP status and wire shape.

The same table answers before a stream has begun (status line and body) and after (an error event).
OpenAI's shape is `{"error": {"message", "type", "param", "code"}}`; `code` is the status, as in
vLLM, unless clients know a word for it (`model_not_found`).

Runs in: API process. Owns: the table. Knows nothing of: routes, the engine.
"""

from __future__ import annotations

import logging

import msgspec

from octavo import errors
from octavo.api.asgi import Send, respond

logger = logging.getLogger(__name__)


class ErrorBody(msgspec.Struct):
    """What went wrong; `param` names the offending field if there is one."""

    message: str
    type: str
    param: str | None
    code: int | str


class ErrorResponse(msgspec.Struct):
    """The error shape of the OpenAI routes."""

    error: ErrorBody


class ErrorRow(msgspec.Struct, frozen=True):
    """One row of the table."""

    status: int
    type: str
    code: str | None = None  # instead of the status


TABLE: dict[type[BaseException], ErrorRow] = {
    errors.RequestError: ErrorRow(400, "BadRequestError"),
    errors.InvalidParameter: ErrorRow(400, "BadRequestError"),
    errors.PromptTooLong: ErrorRow(400, "BadRequestError"),
    errors.UnsupportedFeature: ErrorRow(400, "BadRequestError"),
    errors.Unauthorized: ErrorRow(401, "AuthenticationError", "invalid_api_key"),
    errors.ModelNotFound: ErrorRow(404, "NotFoundError", "model_not_found"),
    errors.NotFound: ErrorRow(404, "NotFoundError"),
    errors.MethodNotAllowed: ErrorRow(405, "MethodNotAllowedError"),
    errors.RequestTooSlow: ErrorRow(408, "RequestTimeoutError"),
    errors.BodyTooLarge: ErrorRow(413, "RequestEntityTooLargeError"),
    errors.HeadTooLarge: ErrorRow(431, "RequestHeaderFieldsTooLargeError"),
    errors.EngineError: ErrorRow(500, "InternalServerError"),
    errors.GenerationFailed: ErrorRow(500, "InternalServerError"),
    errors.EngineDead: ErrorRow(500, "InternalServerError"),
    errors.Overloaded: ErrorRow(503, "ServiceUnavailableError"),
    errors.NotReady: ErrorRow(503, "ServiceUnavailableError"),
    # JSON nested so deeply that something behind the parser gave up
    RecursionError: ErrorRow(400, "BadRequestError"),
}
INTERNAL = ErrorRow(500, "InternalServerError")


def row_of(error: BaseException) -> ErrorRow:
    """The row of the error's class or its nearest base; anything unknown is our mistake, 500."""
    for cls in type(error).__mro__:
        row = TABLE.get(cls)
        if row is not None:
            return row
    return INTERNAL


def openai_error(error: BaseException) -> ErrorResponse:
    """The error in OpenAI's shape. What is not raised on purpose shows nothing of its inside."""
    row = row_of(error)
    if isinstance(error, errors.OctavoError):
        message = error.message or row.type
    elif isinstance(error, RecursionError):
        message = "The request body is nested too deeply."
    else:
        message = "Internal server error"
    param = error.param if isinstance(error, errors.RequestError) else None
    return ErrorResponse(ErrorBody(message, row.type, param, row.code or row.status))


def log_error(error: BaseException, request_id: str, *, with_stack: bool) -> None:
    """Logs what the operator must know: our own mistakes with their trace, the rest on one line."""
    row = row_of(error)
    if row is INTERNAL:
        logger.error("Request %s failed", request_id, exc_info=error)
    elif row.status >= 500 or with_stack:
        logger.warning(
            "Request %s: %d %s",
            request_id,
            row.status,
            openai_error(error).error.message,
            exc_info=error if with_stack else None,
        )


def error_headers(error: BaseException) -> list[tuple[bytes, bytes]]:
    """Headers that belong to the error: `Retry-After`, `WWW-Authenticate`."""
    if isinstance(error, errors.Overloaded):
        return [(b"retry-after", b"%d" % error.retry_after_s)]
    if isinstance(error, errors.Unauthorized):
        return [(b"www-authenticate", b"Bearer")]
    return []


async def send_error(
    send: Send, error: BaseException, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    """Answers with the error: status, headers and body from the table."""
    await respond(
        send,
        row_of(error).status,
        msgspec.json.encode(openai_error(error)),
        headers=[*error_headers(error), *(headers or [])],
    )
