"""Replies as models of each tool format write them, and what they say."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from octavo.api.parsing.pieces import (
    Content,
    Piece,
    Reasoning,
    ReplyParser,
    ToolCallArguments,
    ToolCallStart,
)

#: parameters of the tools that the replies call
TOOLS: dict[str, Any] = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "metric": {"type": "boolean"},
            "note": {"type": ["string", "null"]},
            "filter": {"type": "object"},
            "hours": {"type": "array", "items": {"type": "integer"}},
        },
    },
    "now": {"type": "object", "properties": {}},
}


class Said(NamedTuple):
    """The sum of a reply's pieces. A call is (name, arguments)."""

    content: str
    reasoning: str
    calls: list[tuple[str, str]]


def said(pieces: list[Piece]) -> Said:
    """Sums pieces up; checks that they come in an order that clients understand."""
    content, reasoning = [], []
    calls: list[tuple[str, str]] = []
    for piece in pieces:
        match piece:
            case Content(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case ToolCallStart(index, name):
                assert index == len(calls)
                calls.append((name, ""))
            case ToolCallArguments(index, text):
                assert index == len(calls) - 1
                calls[index] = (calls[index][0], calls[index][1] + text)
    return Said("".join(content), "".join(reasoning), calls)


def read(parser: ReplyParser, cuts: list[str]) -> Said:
    """What a parser makes of a text in some cuts."""
    pieces: list[Piece] = []
    for cut in cuts:
        pieces += parser.feed(cut)
    return said(pieces + parser.finish())


#: braces and marks in texts, characters beyond ASCII, nesting, and a last value without quotes
HARD: dict[str, Any] = {
    "city": "K\u00f6ln {}[]\"'\\ \U0001f600 </x> <tool \n\t[TOOL tail",
    "filter": {"a": {"b": [1, 2.5, {"c": None}], "}": "]"}, "d": []},
    "hours": [1, 22, -3],
    "note": None,
    "metric": True,
    "days": 7,
}
PARIS: dict[str, Any] = {"city": "Paris"}


class Canned(NamedTuple):
    """A reply, what it says to the user, and its calls with their arguments decoded."""

    text: str
    content: str
    calls: list[tuple[str, dict[str, Any]]]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _tagged(arguments: dict[str, Any], form: str) -> str:
    return "".join(
        form.format(key=key, value=value if isinstance(value, str) else _json(value))
        for key, value in arguments.items()
    )


def _envelope(name: str, arguments: dict[str, Any]) -> str:
    return _json({"name": name, "arguments": arguments})


def _python(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _hermes(name: str, arguments: dict[str, Any]) -> str:
    return f"<tool_call>\n{_envelope(name, arguments)}\n</tool_call>"


def _qwen3_coder(name: str, arguments: dict[str, Any]) -> str:
    inside = _tagged(arguments, "<parameter={key}>\n{value}\n</parameter>\n")
    return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


def _seed(name: str, arguments: dict[str, Any]) -> str:
    return _qwen3_coder(name, arguments).replace("tool_call>", "seed:tool_call>")


def _glm(name: str, arguments: dict[str, Any]) -> str:
    form = "<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"
    return f"<tool_call>{name}\n{_tagged(arguments, form)}</tool_call>"


def _minimax(name: str, arguments: dict[str, Any]) -> str:
    inside = _tagged(arguments, '<parameter name="{key}">{value}</parameter>\n')
    return f'<minimax:tool_call>\n<invoke name="{name}">\n{inside}</invoke>\n</minimax:tool_call>'


def _mistral(name: str, arguments: dict[str, Any]) -> str:
    return f"[TOOL_CALLS]{name}[ARGS]{_json(arguments)}"


def _deepseek_v3(name: str, arguments: dict[str, Any]) -> str:
    return _marks(
        f"<|tool calls begin|><|tool call begin|>function<|tool sep|>{name}\n```json\n",
        _json(arguments),
        "\n```<|tool call end|><|tool calls end|>",
    )


def _deepseek_v31(name: str, arguments: dict[str, Any]) -> str:
    return _marks(
        f"<|tool calls begin|><|tool call begin|>{name}<|tool sep|>",
        _json(arguments),
        "<|tool call end|><|tool calls end|>",
    )


def _marks(before: str, arguments: str, after: str) -> str:
    """DeepSeek's special tokens have other bars and spaces."""

    def spelled(text: str) -> str:
        return text.replace("|", "\uff5c").replace(" ", "\u2581")

    return spelled(before) + arguments + spelled(after)


def _kimi(name: str, arguments: dict[str, Any]) -> str:
    return (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{name}:0"
        f"<|tool_call_argument_begin|>{_json(arguments)}<|tool_call_end|>"
        "<|tool_calls_section_end|>"
    )


def _harmony(name: str, arguments: dict[str, Any]) -> str:
    return (
        f"<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json"
        f"<|message|>{_json(arguments)}<|call|>"
    )


def _list(begin: str, end: str) -> Any:
    return lambda name, arguments: f"{begin}[{_envelope(name, arguments)}]{end}"


#: how a model writes one call, by the name of the parser
WRITERS: dict[str, Any] = {
    "deepseek_v3": _deepseek_v3,
    "deepseek_v31": _deepseek_v31,
    "glm45": _glm,
    "granite": _list("<|tool_call|>", ""),
    "hermes": _hermes,
    "internlm": lambda *call: f"<|action_start|><|plugin|>\n{_envelope(*call)}<|action_end|>",
    "jamba": _list("<tool_calls>", "</tool_calls>"),
    "kimi_k2": _kimi,
    "lfm2": lambda *call: f"<|tool_call_start|>[{_python(*call)}]<|tool_call_end|>",
    "llama3_json": lambda name, arguments: _json({"name": name, "parameters": arguments}),
    "llama4_pythonic": lambda *call: f"<|python_start|>[{_python(*call)}]<|python_end|>",
    "longcat": lambda *call: _hermes(*call).replace("tool_call>", "longcat_tool_call>"),
    "minimax_m2": _minimax,
    "mistral": _mistral,
    "olmo3": lambda *call: f"<function_calls>\n{_python(*call)}\n</function_calls>",
    "openai": _harmony,
    "phi4_mini_json": _list("functools", ""),
    "pythonic": lambda *call: f"[{_python(*call)}]",
    "qwen2_5_coder": lambda *call: f"```json\n{_envelope(*call)}\n```",
    "qwen3_coder": _qwen3_coder,
    "seed_oss": _seed,
}
#: formats in which a reply is nothing but calls
ONLY_CALLS = frozenset({"pythonic", "llama4_pythonic"})


def canned(parser: str) -> list[Canned]:
    """Replies in a format: one call, several, text around them, all kinds of values."""
    write = WRITERS[parser]
    weather, now = write("get_weather", PARIS), write("now", {})
    called = [("get_weather", PARIS), ("now", {})]
    replies = [
        Canned(weather, "", called[:1]),
        Canned(now, "", called[1:]),
        Canned(write("get_weather", HARD), "", [("get_weather", HARD)]),
        Canned("Only text: 1 < 2, {x}, [y].", "Only text: 1 < 2, {x}, [y].", []),
    ]
    if parser != "openai":  # its text stands in messages
        replies.append(Canned("  \n", "  \n", []))
    if parser not in ONLY_CALLS:
        replies += [
            Canned(f"{weather}\n{now}", "", called),
            Canned(f"I look.\n{weather}\n{now}\n\nDone.", "I look.\n\n\nDone.", called),
            Canned(f"\n{weather} \n", "", called[:1]),
        ]
    return replies + EXTRA.get(parser, [])


#: what only some formats can say
EXTRA: dict[str, list[Canned]] = {
    "pythonic": [
        Canned(
            "[get_weather(city='Paris', days=3,), now()]",
            "",
            [("get_weather", {"city": "Paris", "days": 3}), ("now", {})],
        ),
        Canned("[1, 2]", "[1, 2]", []),
        Canned("[other(a=1)] x", "[other(a=1)] x", []),
        Canned("See [now()]", "See [now()]", []),
    ],
    "llama3_json": [
        Canned(
            '<|python_tag|>{"name": "other", "parameters": {"a": 1}}; '
            '{"name": "now", "parameters": {}}',
            "",
            [("other", {"a": 1}), ("now", {})],
        ),
        Canned('{"name": "Bob", "parameters": {}}', '{"name": "Bob", "parameters": {}}', []),
        Canned(
            '{"a": {"name": "now", "parameters": {}}}',
            '{"a": {"name": "now", "parameters": {}}}',
            [],
        ),
        Canned('{"name": "now"}', '{"name": "now"}', []),
    ],
    "qwen2_5_coder": [
        Canned('{"name": "now", "arguments": {}}', "", [("now", {})]),
        Canned(
            '{"name": "now", "arguments": {}}\n{"name": "now", "arguments": {}}',
            "",
            [("now", {}), ("now", {})],
        ),
        Canned(
            '```json\n{\n  "name": "now",\n  "arguments": {\n    "a": 1\n  }\n}\n```',
            "",
            [("now", {"a": 1})],
        ),
        Canned(
            '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>', "", [("other", {})]
        ),
        Canned(
            '```json\n{"name": "Bob", "arguments": {"age": 5}}\n```',
            '```json\n{"name": "Bob", "arguments": {"age": 5}}\n```',
            [],
        ),
        Canned('```json\n{"a": 1}\n```\nok', '```json\n{"a": 1}\n```\nok', []),
        Canned('```python\nx = {"a": 1}\n```\n', '```python\nx = {"a": 1}\n```\n', []),
    ],
    "hermes": [
        Canned(
            '<tool_call>{"arguments": "{\\"city\\": \\"Paris\\"}", '
            '"name": "get_weather"}</tool_call>',
            "",
            [("get_weather", PARIS)],
        ),
        Canned('<tool_call>{"name": "now", "arguments": null}', "", [("now", {})]),
        Canned('<tool_call>{"name": "now"}</tool_c', "", [("now", {})]),
        Canned(
            '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>', "", [("unknown", {})]
        ),
        Canned("<tool_call>no</tool_call>", "<tool_call>no</tool_call>", []),
        Canned('a <tool_call>{"name": 1}', 'a <tool_call>{"name": 1}', []),
        Canned('<tool_call>{"name": "no', '<tool_call>{"name": "no', []),
        Canned("<tool_", "<tool_", []),
    ],
    "mistral": [
        Canned(
            '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}, '
            '{"name": "now", "arguments": {}}]',
            "",
            [("get_weather", PARIS), ("now", {})],
        ),
        Canned("[TOOL_CALLS]now{}", "", [("now", {})]),
        Canned("[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}", "", [("now", {})]),
    ],
    "qwen3_coder": [
        Canned(
            "<function=get_weather><parameter=city>Paris<parameter=days> 3 </function>",
            "",
            [("get_weather", {"city": "Paris", "days": 3})],
        ),
        Canned(
            "<tool_call><function=x>\n<parameter=y>\n1\n\n</parameter></function></tool_call>",
            "",
            [("x", {"y": "1\n"})],
        ),
    ],
}
