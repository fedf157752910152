"""transformers' response_template. `tests/conformance` compares with transformers itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from octavo.api.parsing.definition import ParserRequest
from octavo.api.parsing.response_parser import ResponseTemplateFormat
from octavo.errors import ConfigError
from tests.fakes.canned_replies import TOOLS, Said, read
from tests.fakes.response_templates import CALLS_IN_JSON, CALLS_IN_PYTHON, CALLS_IN_TAGS


def reading(
    template: dict[str, Any], text: str, prompt: str = "", tools: dict[str, Any] | None = TOOLS
) -> Said:
    form = ResponseTemplateFormat(template)
    request = ParserRequest(tools or {}, True, prompt, frozenset())
    whole = read(form.make(request), [text])
    assert read(form.make(request), list(text)) == whole
    return whole


def test_thoughts_calls_and_content() -> None:
    text = (
        '<think>\nhm\n</think>\n\nHi. <tool_call>{"name": "now", "arguments": {}}</tool_call>'
        '\n<tool_call>\n{"name": "get_weather", "arguments": {"days": "3"}}\n</tool_call><|im_end|>'
    )
    assert reading(CALLS_IN_JSON, text) == Said(
        "Hi.", "hm", [("now", "{}"), ("get_weather", '{"days": 3}')]
    )


def test_the_prompt_may_have_opened_the_thought() -> None:
    prompt = "<|im_start|>user\n<think><|im_end|>\n<|im_start|>assistant\n"
    assert reading(CALLS_IN_JSON, "hm</think>Yes", prompt + "<think>\n") == Said("Yes", "hm", [])
    assert reading(CALLS_IN_JSON, "Yes", prompt) == Said("Yes", "", [])


def test_patterns_with_groups_and_values_in_tags() -> None:
    text = (
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nK\u00f6ln\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
    )
    said = reading(CALLS_IN_TAGS, "<think>a" + text)  # the call ends the thought
    assert [(name, json.loads(arguments)) for name, arguments in said.calls] == [
        ("get_weather", {"city": "K\u00f6ln", "days": 3})
    ]
    assert said.reasoning == "a"


def test_calls_in_python() -> None:
    said = reading(CALLS_IN_PYTHON, "[now(), get_weather(city='x', metric=True)]")
    assert said.calls == [("now", "{}"), ("get_weather", '{"city": "x", "metric": true}')]


@pytest.mark.parametrize("text", ["<tool_call>{oh</tool_call>", '<tool_call>{"name": "no'])
def test_a_call_that_cannot_be_read_is_content(text: str) -> None:
    assert reading(CALLS_IN_JSON, text) == Said(text, "", [])


def test_without_tools_a_call_is_content() -> None:
    text = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    assert reading(CALLS_IN_JSON, text, tools=None) == Said(text, "", [])


def test_no_text_is_slow() -> None:
    for template in (CALLS_IN_JSON, CALLS_IN_TAGS, CALLS_IN_PYTHON):
        form = ResponseTemplateFormat(template)
        request = ParserRequest(TOOLS, True, "", frozenset())
        for unit in ("<", "{", "[", "<tool_call>", " "):
            read(form.make(request), [unit * (200_000 // len(unit))])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "version 2 is unknown"),
        ({"more": 1}, "unknown keys"),
        ({"start_anchor": ""}, "must be a text"),
        ({"fields": {"citations": {}}}, "citations"),
        ({"fields": {"content": {"content": "json"}}}, "no plain text"),
        ({"fields": {"tool_calls": {"open": "a", "open_pattern": "b"}}}, "exclude each other"),
        ({"fields": {"tool_calls": {"open_pattern": "("}}}, "cannot be used"),
        ({"fields": {"tool_calls": {"content": "yaml"}}}, "unknown content"),
        ({"fields": {"content": {}, "thinking": {}}}, "more than one field has no beginning"),
        ({"fields": {"content": {"join": "x"}}}, "join without repeats"),
        ({"fields": []}, "cannot be used"),
    ],
)
def test_a_template_that_is_wrong_is_refused_with_what_to_do(
    change: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        ResponseTemplateFormat({**CALLS_IN_JSON, **change})
    assert "--tool-call-parser" in str(caught.value)
