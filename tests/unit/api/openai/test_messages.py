from __future__ import annotations

from typing import Any

import pytest

from octavo.api.openai.chat_prompt import copes_with_parts
from octavo.api.openai.messages import prepare_messages
from octavo.errors import RequestError
from tests.fakes.fake_template import FakeTemplate


def prepare(*messages: dict[str, Any], keep_parts: bool = False) -> list[dict[str, Any]]:
    return prepare_messages(messages, keep_parts=keep_parts)


def test_parts_are_joined_or_kept() -> None:
    message = {
        "role": "user",
        "content": [{"type": "text", "text": "a"}, "b", {"text": "c"}],
    }
    assert prepare(message)[0]["content"] == "a\nb\nc"
    assert prepare(message, keep_parts=True)[0]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
        {"type": "text", "text": "c"},
    ]


def test_the_clients_message_is_not_changed() -> None:
    call = {"function": {"name": "f", "arguments": "{}"}}
    message = {"role": "developer", "content": None, "tool_calls": [call], "name": "n"}
    (prepared,) = prepare(message)
    assert prepared["role"] == "system"
    assert prepared["name"] == "n"
    assert prepared["tool_calls"][0]["function"]["arguments"] == {}
    assert message["role"] == "developer"
    assert call["function"]["arguments"] == "{}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("[", "is not JSON"),
        ('{"a": NaN}', "is not JSON"),
        ("1", "no object"),
        ('"{}"', "no object"),
        ([1], "no object"),
        (True, "no object"),
    ],
)
def test_c74_broken_arguments_are_none_and_the_log_says_so(
    arguments: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    call = {"function": {"name": "f\n", "arguments": arguments}}
    (prepared,) = prepare({"role": "assistant", "tool_calls": [call]})
    assert prepared["tool_calls"][0]["function"]["arguments"] == {}
    (record,) = caplog.records
    assert "messages[0].tool_calls[0].function.arguments (f?)" in record.getMessage()
    assert words in record.getMessage()


def test_content_of_a_tool_may_come_in_parts() -> None:
    parts = [{"type": "text", "text": "18 C"}, {"type": "text", "text": "rain"}]
    (prepared,) = prepare({"role": "tool", "tool_call_id": "1", "content": parts})
    assert prepared == {"role": "tool", "tool_call_id": "1", "content": "18 C\nrain"}


def test_empty_tool_calls_are_left_out_and_reasoning_has_both_names() -> None:
    (prepared,) = prepare(
        {"role": "assistant", "content": "x", "tool_calls": [], "reasoning_content": "why"}
    )
    assert "tool_calls" not in prepared
    assert prepared["reasoning"] == prepared["reasoning_content"] == "why"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"content": "x"}, "messages[0].role"),
        ({"role": "", "content": "x"}, "messages[0].role"),
        ({"role": "user", "content": 1}, "messages[0].content"),
        ({"role": "user", "content": [1]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "text", "text": 1}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": ["x"]}]}, "messages[0].content[0]"),
        ({"role": "assistant", "tool_calls": {}}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[0].tool_calls[0].function"),
    ],
)
def test_bad_messages_are_named_exactly(message: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        prepare(message)
    assert caught.value.param == param


def test_no_messages_are_refused() -> None:
    with pytest.raises(RequestError, match="at least one message"):
        prepare()


def test_templates_that_read_parts_are_recognised() -> None:
    assert copes_with_parts(FakeTemplate(takes_parts=True))
    assert not copes_with_parts(FakeTemplate(takes_parts=False))
