"""How a chat template reads past tool calls.

Most templates take arguments as a mapping, as transformers documents; some join them to other text
and need a text. Some show calls only in a message whose content is null. What a template takes is
found by trying: the first form in which it shows the call.

Neighbours: `octavo/api/openai/chat_prompt.py` (asks once per template).
Runs in: API process. Owns: the forms. Knows nothing of: requests, the engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec

from octavo.errors import RequestError

Messages = list[dict[str, Any]]


class ToolCallForm(msgspec.Struct, frozen=True):
    """`as_text`: arguments are JSON in a text; `needs_null`: the content of a message with calls
    and no text must be null."""

    as_text: bool = False
    needs_null: bool = False

    def apply(self, messages: Messages) -> Messages:
        """Copies of prepared messages (arguments are mappings), in this form."""
        return [self._apply(message) for message in messages] if self.as_text else messages

    def _apply(self, message: dict[str, Any]) -> dict[str, Any]:
        if "tool_calls" not in message:
            return message
        calls = [
            {**call, "function": {**call["function"], "arguments": _text(call)}}
            for call in message["tool_calls"]
        ]
        return {**message, "tool_calls": calls}


_FORMS: Final = tuple(ToolCallForm(text, null) for null in (False, True) for text in (False, True))
_CALL: Final = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "probe_name", "arguments": {"probe_key": "probe_value"}},
}
_PROBE: Final[Messages] = [
    {"role": "user", "content": "probe"},
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "content": "probe", "name": "probe_name", "tool_call_id": "call00001"},
]


def tool_call_form(render: Callable[..., str]) -> ToolCallForm:
    """The first form that a template shows calls in; the documented one if it shows none.

    Args:
        render: of the template (`octavo/tokenizer/chat_template.py`).
    """
    for form in _FORMS:
        try:
            text = render(form.apply(_PROBE), null_content=form.needs_null)
        except RequestError:
            continue
        if "probe_name" in text and "probe_value" in text:
            return form
    return _FORMS[0]


def _text(call: dict[str, Any]) -> str:
    return json.dumps(call["function"]["arguments"], ensure_ascii=False)
