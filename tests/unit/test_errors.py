"""The tree of errors."""

from __future__ import annotations

import re

import pytest

from octavo import errors


def documented_tree() -> dict[str, str]:
    """Class -> base, by the columns of the drawing in the module's docstring."""
    tree: dict[str, str] = {}
    above: list[tuple[int, str]] = [(-1, "Exception")]
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r" {4}[| `-]*([A-Z]\w+)", line)
        if match is None:
            continue
        column, name = match.start(1), match.group(1)
        while above[-1][0] >= column:
            above.pop()
        tree[name] = above[-1][1]
        above.append((column, name))
    return tree


TREE = documented_tree()


def test_the_tree_is_the_documented_one() -> None:
    classes = {
        name: value.__bases__[0].__name__
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert classes == TREE
    assert TREE["ConfigError"] == "StartupError"


@pytest.mark.parametrize("name", list(TREE))
def test_every_error_carries_its_sentence(name: str) -> None:
    error = getattr(errors, name)("a sentence")
    assert error.message == "a sentence"
    assert str(error) == "a sentence"


def test_request_errors_name_the_field() -> None:
    assert errors.InvalidParameter("x", param="top_p").param == "top_p"
    assert errors.NotFound("x").param is None


def test_overload_says_when_to_come_back() -> None:
    assert errors.Overloaded("x").retry_after_s == 1
    assert errors.NotReady("x", retry_after_s=5).retry_after_s == 5


def test_exit_codes() -> None:
    assert errors.StartupError("x").exit_code == 1
    assert errors.ConfigError("x").exit_code == 2
