"""Plans for replies; what becomes of them over HTTP is in `tests/api`."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.api.openai.protocol import ChatCompletionRequest
from octavo.api.openai.reply_reading import ReadingSettings, ReplyReading
from octavo.api.parsing.factory import ModelTexts, reply_parsers
from octavo.api.parsing.pieces import Content, Reasoning
from octavo.sampling_params import SamplingParams

PROMPT = "user: hi\nassistant:"


def reading(tools: str | None = None, reasoning: str | None = None, **more: Any) -> ReplyReading:
    parsers = reply_parsers(tool_name=tools, reasoning_name=reasoning, model=ModelTexts())
    return ReplyReading(ReadingSettings(parsers=parsers, **more))


def request(**fields: Any) -> ChatCompletionRequest:
    return ChatCompletionRequest(messages=[{"role": "user", "content": "hi"}], **fields)


def test_a_plain_request_is_left_as_it_is() -> None:
    for made in (ReplyReading(ReadingSettings()), reading("hermes")):
        plan, params = made.plan(request()), SamplingParams()
        assert plan.constrain(params, PROMPT) == SamplingParams()
        assert plan.parsing(PROMPT) is None
        assert plan.template_variables == {}
        assert plan.shown_tools is None


@pytest.mark.parametrize(
    ("operator", "effort", "kwargs", "thinks"),
    [
        ({}, None, None, True),  # qwen3 thinks unless it is told not to
        ({"enable_thinking": False}, None, None, False),
        ({"enable_thinking": False}, "high", None, True),
        ({}, "none", None, False),
        ({}, "high", {"enable_thinking": False}, False),
        ({}, None, {"thinking": False}, False),
        ({}, None, {"enable_thinking": "no"}, True),
    ],
)
def test_the_nearest_word_on_thinking_counts(
    operator: dict[str, object], effort: Any, kwargs: dict[str, Any] | None, thinks: bool
) -> None:
    made = reading(reasoning="qwen3", template_kwargs=operator)
    plan = made.plan(request(reasoning_effort=effort, chat_template_kwargs=kwargs))
    make = plan.parsing(PROMPT)
    assert make is not None
    pieces = make().parser.feed("so")
    assert pieces == [Reasoning("so") if thinks else Content("so")]


def test_each_choice_has_a_parser_of_its_own() -> None:
    make = reading(reasoning="qwen3").plan(request()).parsing(PROMPT)
    assert make is not None
    first, second = make(), make()
    first.parser.feed("a</think>b")
    assert second.parser.feed("a") == [Reasoning("a")]


def test_effort_is_told_to_templates_in_both_ways() -> None:
    plan = reading(reasoning="qwen3").plan(request(reasoning_effort="low"))
    assert plan.template_variables == {"reasoning_effort": "low", "enable_thinking": True}
