"""Every error Octavo raises on purpose.

    OctavoError
    |-- RequestError            the client's mistake; ends one request        HTTP 4xx
    |   |-- InvalidParameter    a field has a value that cannot be served     400
    |   |-- PromptTooLong       the prompt does not fit in the window         400
    |   |-- UnsupportedFeature  a known feature that is not there             400
    |   |-- Unauthorized        missing or wrong key                          401
    |   |-- ModelNotFound       the named model is not served here            404
    |   |-- NotFound            no such route or object                       404
    |   |-- MethodNotAllowed    the route exists, not with this method        405
    |   |-- RequestTooSlow      the request does not arrive in time           408
    |   |-- BodyTooLarge        the request body exceeds the limit            413
    |   `-- HeadTooLarge        the request's headers exceed the limit        431
    |-- EngineError             our side                                      HTTP 5xx
    |   |-- GenerationFailed    one request's step failed; others go on       500
    |   |-- EngineDead          the engine core is gone                       500
    |   `-- Overloaded          a queue limit is reached                      503 + Retry-After
    |       `-- NotReady        starting or draining                          503 + Retry-After
    |-- StartupError            the process cannot start                      exit 1
    |   `-- ConfigError         flags, environment or model do not fit        exit 2
    `-- CommandFailed           a client on the command line cannot go on     exit 1 or other

Raised, never returned. `octavo/api/errors.py` holds the one table from class to HTTP status and
wire shape.

Knows nothing of: HTTP, processes, models.
"""

from __future__ import annotations


class OctavoError(Exception):
    """Base of all errors that Octavo raises on purpose."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RequestError(OctavoError):
    """The request cannot be served as sent.

    Args:
        message: one sentence: the field, the value, what to do.
        param: name of the offending field, or None.
    """

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class InvalidParameter(RequestError):
    """A field has a value that cannot be served."""


class PromptTooLong(RequestError):
    """The prompt does not fit in the model's window."""


class UnsupportedFeature(RequestError):
    """A feature that clients know but this server does not have."""


class Unauthorized(RequestError):
    """No key, or a wrong one."""


class ModelNotFound(RequestError):
    """The named model is not served here."""


class NotFound(RequestError):
    """No such route or object."""


class MethodNotAllowed(RequestError):
    """The route exists, but not with this method."""


class RequestTooSlow(RequestError):
    """The request does not arrive in time."""


class BodyTooLarge(RequestError):
    """The request body exceeds the limit."""


class HeadTooLarge(RequestError):
    """The request's headers exceed the limit."""


class EngineError(OctavoError):
    """The request was fine; the engine could not serve it."""


class GenerationFailed(EngineError):
    """One request's step failed; other requests go on."""


class EngineDead(EngineError):
    """The engine core has ended; no request can be served any more."""


class Overloaded(EngineError):
    """A queue limit is reached.

    Args:
        message: one sentence.
        retry_after_s: seconds after which a retry makes sense; sent as `Retry-After`.
    """

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotReady(Overloaded):
    """The server is starting or draining."""


class StartupError(OctavoError):
    """The process cannot start; printed last and once, exit code 1."""

    exit_code = 1


class ConfigError(StartupError):
    """Flags, environment or model do not fit together; exit code 2."""

    exit_code = 2


class CommandFailed(OctavoError):
    """A client on the command line cannot do what it was asked; printed once.

    Args:
        message: one sentence.
        exit_code: of the process.
    """

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
