"""The Jinja environment of chat templates, equal to transformers'.

Sandboxed, because templates come with models: a template sees plain data and a few functions, and
what it costs is limited (`template_budget.py`).

Imported late by `chat_template.py`: Jinja takes 70 ms to load. Source: transformers,
utils/chat_template_utils.py.

Runs in: the API process. Owns: filters, tags and functions. Knows nothing of: messages, tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import update_wrapper
from typing import Any, Final

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from octavo.tokenizer.template_budget import BYTES_PER_ITEM, current_budget

_LEAST_REPEATED: Final = 20  # a separator may be as much shorter than a width
_STEP: Final = "step"  # the method of the environment
#: of Jinja's filters: which of their arguments (by place, the value being 0) pad or indent
_PADDING: Final = {
    "center": 1, "indent": 1, "batch": 1, "slice": 1, "wordwrap": 3, "tojson": 2,
}  # fmt: skip
#: names of arguments that do
_PADDING_NAMES: Final = frozenset({"width", "linecount", "slices", "indent", "wrapstring"})
#: those that neither write their values out nor copy what these hold
_LIGHT_FILTERS: Final = frozenset({
    "abs", "attr", "batch", "count", "d", "default", "dictsort", "first", "float", "groupby", "int",
    "items", "last", "length", "list", "map", "max", "min", "random", "reject", "rejectattr",
    "reverse", "round", "select", "selectattr", "slice", "sort", "sum", "unique",
})  # fmt: skip
#: methods of texts that pad
_PADDING_METHODS: Final = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs"})


def chat_environment(clock: Callable[[], datetime] = datetime.now) -> ImmutableSandboxedEnvironment:
    """A new environment; templates are compiled and rendered inside `template_budget.spending`.

    Args:
        clock: what `strftime_now` formats.
    """
    environment = _ChatEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationTag, loopcontrols],
        finalize=_weighed,
    )

    def strftime_now(format: str) -> str:
        return clock().strftime(format)

    environment.filters["tojson"] = _tojson
    for name, function in environment.filters.items():
        environment.filters[name] = _counted_filter(name, function)
    for name, function in environment.tests.items():
        environment.tests[name] = _counted_test(function)
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = strftime_now
    environment.globals["dict"] = _TemplateDict()
    environment.globals["namespace"] = _TemplateNamespace
    environment.globals["range"] = _counted_range
    environment.globals["lipsum"] = _counted_lipsum(environment.globals["lipsum"])
    return environment


class _CodeGenerator(CodeGenerator):
    """`a ~ b` goes through the environment, like the other operators, and steps are counted."""

    def visit_EnvironmentAttribute(self, node: nodes.EnvironmentAttribute, frame: Frame) -> None:  # noqa: N802
        super().visit_EnvironmentAttribute(node, frame)
        if node.name == _STEP:  # as `nodes.Call` it would go through the sandbox: ten times slower
            self.write("()")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802
        self._visit_literal(super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        self._visit_literal(super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        if node.ctx == "load":
            self._visit_literal(super().visit_Tuple, node, frame)
        else:  # names to assign to
            super().visit_Tuple(node, frame)

    def _visit_literal(self, visit: Callable[[Any, Frame], None], node: Any, frame: Frame) -> None:
        """A few lists of lists, each with the last one twice in it, could be compared or written
        for ever: what a literal holds is weighed when it is made."""
        self.write("environment.weighed(")
        visit(node, frame)
        self.write(")")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        if isinstance(node.arg, nodes.Slice):
            self.write("environment.copied(")
        super().visit_Getitem(node, frame)
        if isinstance(node.arg, nodes.Slice):
            self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 (Jinja's name)
        self.write("environment.join_texts((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class _ChatEnvironment(ImmutableSandboxedEnvironment):
    """Whatever makes something large asks the budget first."""

    code_generator_class = _CodeGenerator
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        """Loops and macros begin with a step."""
        for node in source.find_all((nodes.For, nodes.Macro, nodes.CallBlock)):
            assert isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock)
            step = nodes.ExprStmt(nodes.EnvironmentAttribute(_STEP))
            step.set_lineno(node.lineno).set_environment(self)
            node.body.insert(0, step)
        return super()._generate(source, *args, **kwargs)

    def step(self) -> None:
        current_budget().step()

    def weighed(self, value: Any) -> Any:
        current_budget().weigh(value)
        return value

    def copied(self, value: Any) -> Any:
        current_budget().take_copy(value)
        return value

    def join_texts(self, values: Sequence[Any]) -> str:
        current_budget().weigh(values)
        return "".join(map(str, values))

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """Joins what a template, a macro or a block has written."""
        budget, written = current_budget(), []
        for piece in pieces:
            budget.take(len(piece))
            written.append(piece)
        return "".join(written)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = current_budget()
        match operator:
            case "+":
                budget.add(left, right)
            case "*":
                budget.multiply(left, right)
            case "**":
                budget.power(left, right)
            case "%":
                budget.format(left, right)
        return super().call_binop(context, operator, left, right)

    def call(  # its own names must not be in the way of a template's keywords
        __self,  # noqa: N805
        __context: Context,
        __obj: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            if __obj.__name__ == "join" and args:
                args = (_counted_items(args[0]), *args[1:])
            _check_text_method(owner, __obj.__name__, args, kwargs)
            result = super().call(__context, __obj, *args, **kwargs)
            current_budget().take_copy(result)
            return result
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`text.format` and `text.format_map`, which the sandbox replaces by its own."""
        replaced = super().wrap_str_format(value)
        if replaced is None:
            return None

        def counted(*args: Any, **kwargs: Any) -> str:
            current_budget().format(value.__self__, [args, kwargs])
            return replaced(*args, **kwargs)

        return update_wrapper(counted, replaced)


def _check_text_method(text: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    budget = current_budget()
    if name in _PADDING_METHODS:
        budget.pad(*args, *kwargs.values())
        budget.take(len(text))
    elif name == "replace" and len(args) > 1:
        budget.replace(text, *args[:2])
    elif name == "join" and args:
        budget.join(text, args[0])
    else:
        budget.take(len(text))


def _counted_items(values: Any) -> Any:
    """Values to join; those that come one by one are collected."""
    if isinstance(values, str | list | tuple | dict):
        return values
    items, budget = [], current_budget()
    for item in values:
        budget.step()
        budget.weigh(item)
        items.append(item)
    return items


def _weighed(value: Any) -> Any:
    """A value that is written out as text."""
    if type(value) is not str:
        current_budget().weigh(value)
    return value


def _counted_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    place, is_light = _PADDING.get(name), name in _LIGHT_FILTERS

    def counted(*args: Any, **kwargs: Any) -> Any:
        budget, passed = current_budget(), args
        if hasattr(function, "jinja_pass_arg"):  # the first argument is Jinja's own
            passed = args[1:]
        budget.step()
        if not is_light:
            for value in passed:
                budget.weigh(value)
        if place is not None and len(passed) > place:
            budget.pad(passed[place])
        budget.pad(*(value for key, value in kwargs.items() if key in _PADDING_NAMES))
        if name == "replace" and len(passed) > 2 and isinstance(passed[0], str):
            budget.replace(*passed[:3])
        elif name == "join" and len(passed) > 1:
            budget.join(passed[1], passed[0])
        elif name == "format":
            budget.format(passed[0], [*passed[1:], kwargs])
        elif name == "sum":
            items = _counted_items(passed[0])
            args = (*args[: len(args) - len(passed)], items, *passed[1:])
            if any(isinstance(v, str | list | tuple) for v in (*passed[2:], kwargs.get("start"))):
                for _ in items:  # each addition copies what there is
                    budget.weigh(items)
        result = function(*args, **kwargs)
        budget.take_copy(result)
        return result

    return update_wrapper(counted, function)


def _counted_test(function: Any) -> Callable[..., Any]:
    def counted(*args: Any, **kwargs: Any) -> Any:
        current_budget().step()
        return function(*args, **kwargs)

    return update_wrapper(counted, function)


def _counted_range(*args: int) -> range:
    values = range(*args)
    current_budget().take(len(values) * BYTES_PER_ITEM)
    return values


def _counted_lipsum(function: Any) -> Callable[..., Any]:
    def counted(n: int = 5, html: bool = True, min: int = 20, max: int = 100) -> Any:
        current_budget().pad(n * max)
        return function(n, html, min, max)

    return counted


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
        made: dict[Any, Any] = dict(*args, **kwargs)
        current_budget().weigh(made)
        return made

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        return dict.fromkeys(keys, value)


class _TemplateNamespace(Namespace):
    """`namespace(...)` that takes no underscored names."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # `self` may be a name in the template
        self, *rest = args
        values = dict(*rest, **kwargs)
        for name in values:
            _check_name(name)
        _check_no_namespace(values)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        _check_no_namespace({name: value})
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold the underscored name {name!r}")


def _check_no_namespace(values: Mapping[Any, Any]) -> None:
    """Its text holds the texts of its values, and of theirs: written, it could have no end."""
    current_budget().weigh(values)
    if any(isinstance(value, Namespace) for value in values.values()):
        raise SecurityError("a namespace cannot hold a namespace")


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
    current_budget().pad(*(text * _LEAST_REPEATED for text in separators or ()))
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
