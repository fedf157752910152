"""Replies read by a response_template say what transformers says they do."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from transformers.utils.chat_parsing import parse_response

from octavo.api.parsing.definition import ParserRequest
from octavo.api.parsing.response_parser import ResponseTemplateFormat
from tests.fakes.canned_replies import TOOLS, Said, read
from tests.fakes.response_templates import CALLS_IN_JSON, CALLS_IN_PYTHON, CALLS_IN_TAGS

ASSISTANT = "<|im_start|>assistant\n"
PARTS = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", "\n", " ", "hello", "<|im_end|>", "<",
    "{", '"', '{"name": "now", "arguments": {"a": 1}}', "<function=get_weather>", "</function>",
    "<parameter=city>\nParis\n</parameter>\n", "<parameter=days>\n3\n</parameter>", "[now()]",
    "[get_weather(city='x', days=2)]",
]  # fmt: skip
DECLARED = [
    {"type": "function", "function": {"name": name, "parameters": parameters}}
    for name, parameters in TOOLS.items()
]


def ours(template: dict[str, Any], text: str, prompt: str) -> Said:
    request = ParserRequest(TOOLS, True, prompt, frozenset())
    form = ResponseTemplateFormat(template)
    whole = read(form.make(request), [text])
    assert read(form.make(request), list(text)) == whole, text
    return whole


@pytest.mark.parametrize("template", [CALLS_IN_JSON, CALLS_IN_TAGS, CALLS_IN_PYTHON])
def test_random_replies_say_the_same(template: dict[str, Any]) -> None:
    rng = random.Random(0)
    prompts = [ASSISTANT, ""]
    if "thinking" in template["fields"]:  # else transformers counts it to the content
        prompts.append(f"{ASSISTANT}<think>\n")
    num_compared = 0
    for _ in range(500):
        text = "".join(rng.choice(PARTS) for _ in range(rng.randint(1, 8)))
        prompt = rng.choice(prompts)
        said = ours(template, text, prompt)
        try:
            message = parse_response(text, template, prefix=prompt, tools=DECLARED)
        except ValueError:
            continue  # a call that cannot be read; here it is content
        num_compared += 1
        calls = [
            (call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls") or []
        ]
        assert [(name, json.loads(arguments)) for name, arguments in said.calls] == calls, text
        # of a field that comes twice transformers keeps the last; a stream has sent the first
        assert said.reasoning.endswith(message.get("thinking") or ""), text
        assert said.content.endswith(message.get("content") or ""), text
    assert num_compared > 300
