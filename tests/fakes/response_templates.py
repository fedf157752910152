"""Templates of tokenizer_config.json in transformers' form."""

from __future__ import annotations

from typing import Any

_CALL = {"name": "{content.name}", "arguments": "{content.arguments}"}

#: as Qwen3's would be
CALLS_IN_JSON: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>"},
        "tool_calls": {
            "open": "<tool_call>",
            "close": "</tool_call>",
            "content": "json",
            "repeats": True,
            "transform": {"type": "function", "function": _CALL},
        },
        "content": {"close": "<|im_end|>"},
    },
}
#: as Qwen3-Coder's would be, with patterns
CALLS_IN_TAGS: dict[str, Any] = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "thinking": {"open_pattern": r"<think>\s*", "close_pattern": r"</think>|(?=<tool_call>)"},
        "tool_calls": {
            "open_pattern": r"<tool_call>\s*<function=(?P<name>[^>\n]+)>",
            "close_pattern": r"</function>\s*</tool_call>",
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": r"<parameter=(?P<key>\w+)>\n(?P<value>.*?)\n</parameter>"
            },
            "repeats": True,
            "transform": {
                "type": "function",
                "function": {"name": "{name}", "arguments": "{content}"},
            },
        },
        "content": {},
    },
}
CALLS_IN_PYTHON: dict[str, Any] = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open_pattern": r"(?=\[)",
            "close_pattern": r"$",
            "content": "python-call-list",
            "transform_each": True,
            "transform": {
                "type": "function",
                "function": {"name": "{name}", "arguments": "{arguments}"},
            },
        },
        "content": {},
    },
}
