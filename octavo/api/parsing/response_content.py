"""What stands in a field of transformers' response_template -> a value of JSON.

Follows transformers 5.24 (`transformers.utils.chat_parsing.content_parsers`), whose results the
tests compare. Lists of Python calls are read more leniently, by the engine's own notation.

Runs in: API process. Owns: the content parsers. Knows nothing of: where a field begins and ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import regex

from octavo.api.parsing.engine import MarkedReplyParser
from octavo.api.parsing.pieces import Content, Piece, ToolCallArguments, ToolCallStart
from octavo.api.parsing.reply_format import ReplyFormat
from octavo.api.tool_parsers.pythonic import CALL_LIST

Arguments = Mapping[str, Any]
_PLACEHOLDER = regex.compile(r"\{(\w+(?:\.\w+)*)\}")
_OPEN, _CLOSE = "\x01", "\x02"  # stand for texts while the rest becomes JSON
_BARE_KEY = regex.compile(r'"(?:\\.|[^"\\])*"|(?<=[{,])(\s*)(\w+)(\s*):')
_CALL_LIST = ReplyFormat(CALL_LIST, None)


def parse_content(text: str, name: str, args: Arguments) -> Any:
    """
    Raises:
        ValueError: the text is not what the parser reads.
    """
    return CONTENT_PARSERS[name](text, args)


def _text(text: str, args: Arguments) -> str:
    return text.strip() if args.get("strip", True) else text


def _int(text: str, args: Arguments) -> int:
    return int(_text(text, args))


def _float(text: str, args: Arguments) -> float:
    return float(_text(text, args))


def _bool(text: str, args: Arguments) -> bool:
    return _text(text, args).lower() in ("true", "1")


def _json(text: str, args: Arguments) -> Any:
    """JSON, possibly with bare keys and with texts between marks of the model's own."""
    delimiters = args.get("string_delims", [])
    if delimiters and (_OPEN in text or _CLOSE in text):
        raise ValueError("the text has control characters that are used for texts")
    working, captured = text, []
    for begin, end in delimiters:

        def capture(match: regex.Match[str]) -> str:
            captured.append(match[1])
            return f"{_OPEN}{len(captured) - 1}{_CLOSE}"

        pattern = f"{regex.escape(begin)}(.*?){regex.escape(end)}"
        working = regex.sub(pattern, capture, working, flags=regex.DOTALL)
    if args.get("unquoted_keys", False):
        working = _BARE_KEY.sub(_quoted_key, working)
    if captured:
        working = regex.sub(
            f"{_OPEN}([0-9]+){_CLOSE}", lambda match: json.dumps(captured[int(match[1])]), working
        )
    try:
        return json.loads(working)
    except (ValueError, RecursionError) as error:
        if args.get("allow_non_json"):
            return _text(text, args)
        raise ValueError(str(error)) from error


def _quoted_key(match: regex.Match[str]) -> str:
    return match[0] if match[2] is None else f'{match[1]}"{match[2]}"{match[3]}:'


def _part(text: str, parser: Mapping[str, Any] | None) -> Any:
    if parser is None:
        return text
    return parse_content(text, parser.get("name", "text"), parser.get("args", {}))


def _xml_inline(text: str, args: Arguments) -> dict[str, Any]:
    found: dict[str, Any] = {}
    repeated: set[str] = set()
    for match in regex.finditer(args["tag_pattern"], text, flags=regex.DOTALL):
        groups = match.groupdict()
        key, value = groups["key"], _part(groups.get("value", ""), args.get("value_parser"))
        if key not in found or not args.get("merge_duplicates", False):
            found[key] = value
            continue
        if key not in repeated:
            repeated.add(key)
            found[key] = [found[key]]
        found[key].append(value)
    return found


def _kv_lines(text: str, args: Arguments) -> dict[str, Any]:
    separator = args.get("kv_sep", ":")
    found: dict[str, Any] = {}
    for line in text.split(args.get("line_sep", "\n")):
        key, separated, value = _text(line, args).partition(separator)
        if separated:
            found[_text(key, args)] = _part(_text(value, args), args.get("value_parser"))
    return found


def _python_call_list(text: str, args: Arguments) -> list[dict[str, Any]]:
    parser = MarkedReplyParser(_CALL_LIST, schemas={})
    pieces: list[Piece] = [*parser.feed(text), *parser.finish()]
    calls: list[tuple[str, list[str]]] = []
    for piece in pieces:
        match piece:
            case ToolCallStart(_, name):
                calls.append((name, []))
            case ToolCallArguments(_, part):
                calls[-1][1].append(part)
            case Content():
                raise ValueError("the text is no list of calls")
    return [{"name": name, "arguments": json.loads("".join(parts))} for name, parts in calls]


CONTENT_PARSERS: Mapping[str, Callable[[str, Arguments], Any]] = {
    "text": _text,
    "int": _int,
    "float": _float,
    "bool": _bool,
    "json": _json,
    "xml-inline": _xml_inline,
    "kv-lines": _kv_lines,
    "python-call-list": _python_call_list,
}


def transformed(shape: Any, scope: Mapping[str, Any]) -> Any:
    """A shape with its placeholders (`{content.name}`) replaced.

    Raises:
        ValueError: what a placeholder names is not there.
    """
    if isinstance(shape, dict):
        return {key: transformed(value, scope) for key, value in shape.items()}
    if isinstance(shape, list):
        return [transformed(value, scope) for value in shape]
    match = _PLACEHOLDER.fullmatch(shape) if isinstance(shape, str) else None
    if match is None:
        return shape
    value: Any = scope
    for key in match[1].split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise ValueError(f"there is nothing for {{{match[1]}}}")
        value = value[key]
    return value


def has_mixed_placeholder(shape: Any) -> bool:
    """True if a string of a shape has a placeholder and other text, which is not supported."""
    if isinstance(shape, dict):
        return any(map(has_mixed_placeholder, shape.values()))
    if isinstance(shape, list):
        return any(map(has_mixed_placeholder, shape))
    return (
        isinstance(shape, str)
        and _PLACEHOLDER.search(shape) is not None
        and _PLACEHOLDER.fullmatch(shape) is None
    )
