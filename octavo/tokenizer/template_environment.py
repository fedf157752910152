"""The Jinja environment of chat templates, equal to transformers'.

Sandboxed, because templates come with models: a template sees plain data and a few functions. Its
loops over `range` share a budget, so that a template cannot keep a server busy without end. (It can
still build a very long text; templates come from the operator, or from requests only with
`--trust-request-chat-template`.)

Imported late by `chat_template.py`: Jinja takes 70 ms to load. Source: transformers,
utils/chat_template_utils.py.

Runs in: the API process. Owns: filters, tags and functions. Knows nothing of: messages, tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_RANGE_STEPS: Final = 1_000_000  # over all loops of one rendering

_steps_left: ContextVar[list[int]] = ContextVar("_steps_left")


def chat_environment(clock: Callable[[], datetime] = datetime.now) -> ImmutableSandboxedEnvironment:
    """A new environment. `clock` is what `strftime_now` formats."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )

    def strftime_now(format: str) -> str:
        return clock().strftime(format)

    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = strftime_now
    environment.globals["dict"] = _TemplateDict()
    environment.globals["namespace"] = _TemplateNamespace
    environment.globals["range"] = _budgeted_range
    return environment


@contextmanager
def loop_budget(num_steps: int = MAX_RANGE_STEPS) -> Iterator[None]:
    """Around one rendering: how many values its `range` loops may take together."""
    token = _steps_left.set([num_steps])
    try:
        yield
    finally:
        _steps_left.reset(token)


class _GenerationTag(Extension):
    """`{% generation %}`: marks what the assistant says, for training; here it renders its body."""

    tags = {"generation"}  # as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_render_body")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render_body(self, caller: Macro) -> str:
        return str(caller())


class _TemplateDict:
    """`dict(...)` without the type behind it."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        return dict.fromkeys(keys, value)


class _TemplateNamespace(Namespace):
    """`namespace(...)` that takes no underscored names."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # `self` may be a name in the template
        self, *rest = args
        values = dict(*rest, **kwargs)
        for name in values:
            _check_name(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold the underscored name {name!r}")


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: Jinja's own filter escapes for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _budgeted_range(*args: int) -> range:
    values = range(*args)
    left = _steps_left.get()
    left[0] -= len(values)
    if left[0] < 0:
        raise SecurityError(f"its loops over range take more than {MAX_RANGE_STEPS} steps")
    return values
