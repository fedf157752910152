from __future__ import annotations

import pytest

from octavo import errors
from octavo.api.errors import TABLE, error_headers, openai_error, row_of


def all_errors(cls: type) -> list[type]:
    """This class and all below it that `octavo/errors.py` defines."""
    below = [sub for sub in cls.__subclasses__() if sub.__module__ == errors.__name__]
    return [cls, *[d for sub in below for d in all_errors(sub)]]


@pytest.mark.parametrize("cls", all_errors(errors.RequestError) + all_errors(errors.EngineError))
def test_every_error_of_a_request_has_its_own_row(cls: type[errors.OctavoError]) -> None:
    assert cls in TABLE
    row = row_of(cls("x"))
    assert (400 <= row.status < 500) is issubclass(cls, errors.RequestError)


def test_a_new_subclass_inherits_its_bases_row() -> None:
    class Special(errors.PromptTooLong):
        pass

    assert row_of(Special("x")) is TABLE[errors.PromptTooLong]


def test_the_param_is_told() -> None:
    body = openai_error(errors.InvalidParameter("no", param="n")).error
    assert (body.message, body.param, body.code) == ("no", "n", 400)


def test_foreign_exceptions_say_nothing_of_themselves() -> None:
    body = openai_error(ValueError("/etc/secret")).error
    assert (body.message, body.code) == ("Internal server error", 500)


def test_overload_says_when_to_come_back() -> None:
    assert error_headers(errors.Overloaded("x", retry_after_s=7)) == [(b"retry-after", b"7")]
    assert error_headers(errors.NotReady("x")) == [(b"retry-after", b"1")]
    assert error_headers(errors.InvalidParameter("x")) == []
