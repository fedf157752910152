"""A chat template without Jinja: one line per message."""

from __future__ import annotations

from typing import Any

from octavo.errors import InvalidParameter


class FakeTemplate:
    """`role:content` lines; remembers what it was given."""

    def __init__(self, *, takes_parts: bool = False) -> None:
        self.takes_parts = takes_parts
        self.calls: list[dict[str, Any]] = []

    def render(self, messages: list[dict[str, Any]], /, **variables: Any) -> str:
        self.calls.append({"messages": messages, **variables})
        if any(m["role"] == "forbidden" for m in messages):
            raise InvalidParameter("Conversation roles must alternate", param="messages")
        lines = []
        for message in messages:
            content = message["content"]
            if self.takes_parts and isinstance(content, list):
                content = "+".join(part["text"] for part in content)
            lines.append(f"{message['role']}:{content}\n")
        if variables.get("add_generation_prompt", True):
            lines.append("assistant:")
        return "".join(lines)
