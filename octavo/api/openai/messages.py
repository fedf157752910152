"""Chat messages as clients send them, made ready for a chat template.

Templates see plain dicts: text content (or a list of text parts, if the template wants them),
tool-call arguments as mappings, the role `developer` as `system`.

Runs in: API process. Owns: the checks of messages. Knows nothing of: templates, the engine.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from octavo.api.json_cost import check_json_cost
from octavo.api.openai.custom_tools import as_function_call
from octavo.errors import InvalidParameter, UnsupportedFeature
from octavo.wording import first_line, printable

logger = logging.getLogger(__name__)

#: part types that hold text, and the key that holds it
_TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}


def prepare_messages(
    messages: Sequence[dict[str, Any]], *, keep_parts: bool
) -> list[dict[str, Any]]:
    """Checked copies of the messages.

    Args:
        messages: of a request; other keys than those known here are passed on.
        keep_parts: leave content that came as parts a list of `{"type": "text", "text": ...}`; else
            parts are joined with newlines.

    Raises:
        InvalidParameter, UnsupportedFeature: `param` says which message and part.
    """
    if not messages:
        raise InvalidParameter("messages must contain at least one message.", param="messages")
    return [
        _prepare(message, f"messages[{index}]", keep_parts)
        for index, message in enumerate(messages)
    ]


def _prepare(message: dict[str, Any], place: str, keep_parts: bool) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise _invalid(f"{place}.role", "must be a non-empty string")
    prepared = dict(message)
    prepared["role"] = "system" if role == "developer" else role
    prepared["content"] = _content(message.get("content"), f"{place}.content", keep_parts)
    tool_calls = message.get("tool_calls")
    if tool_calls is not None:
        prepared["tool_calls"] = _tool_calls(tool_calls, f"{place}.tool_calls")
        if not prepared["tool_calls"]:
            del prepared["tool_calls"]
    reasoning = message.get("reasoning", message.get("reasoning_content"))
    if reasoning is not None:
        prepared["reasoning"] = prepared["reasoning_content"] = reasoning
    return prepared


def _content(content: Any, place: str, keep_parts: bool) -> str | list[dict[str, str]]:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _invalid(place, "must be a string or a list of parts")
    texts = [_part_text(part, f"{place}[{index}]") for index, part in enumerate(content)]
    if keep_parts:
        return [{"type": "text", "text": text} for text in texts]
    return "\n".join(texts)


def _part_text(part: Any, place: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise _invalid(place, "must be a string or an object")
    kind = part.get("type")
    if kind is None and isinstance(part.get("text"), str):
        kind = "text"
    key = _TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    if key is None:
        raise UnsupportedFeature(
            f"{place}: parts of type {ascii(kind)[:60]} are not supported by this model; it takes "
            "text only.",
            param=place,
        )
    text = part.get(key)
    if not isinstance(text, str):
        raise _invalid(f"{place}.{key}", "must be a string")
    return text


def _tool_calls(calls: Any, place: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise _invalid(place, "must be a list")
    prepared = []
    for index, call in enumerate(calls):
        at = f"{place}[{index}]"
        call = as_function_call(call)
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            if isinstance(call, dict) and call.get("type") == "custom":
                raise _invalid(f"{at}.custom", "must be an object with a name and an input")
            raise _invalid(f"{at}.function", "must be an object with a name")
        arguments = _arguments(function, f"{at}.function.arguments")
        prepared.append({**call, "function": {**function, "arguments": arguments}})
    return prepared


def _arguments(function: dict[str, Any], place: str) -> dict[str, Any]:
    """Arguments travel as a JSON string; templates want the mapping.

    What a model has written is part of the conversation for good: if it is no object, refusing it
    would end the conversation. The template sees none then, and the log says so.
    """
    arguments = function.get("arguments")
    if arguments is None or arguments == "":
        return {}
    if isinstance(arguments, str):
        text = arguments.encode()
        check_json_cost(text)
        try:
            arguments = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            logger.warning(
                "%s (%s) is not JSON (%s); the template sees no arguments.",
                place,
                printable(function["name"], 60),
                first_line(error),
            )
            return {}
    if not isinstance(arguments, dict):
        logger.warning(
            "%s (%s) is JSON but no object; the template sees no arguments.",
            place,
            printable(function["name"], 60),
        )
        return {}
    return arguments


def _invalid(place: str, rule: str) -> InvalidParameter:
    return InvalidParameter(f"{place} {rule}.", param=place)
