"""A real model calls a tool by itself, through the official client, and answers after the result.

Qwen2.5-Coder-0.5B knows when to call; it writes the object alone or in a code block, not the tags
that its template asks for (`--tool-call-parser qwen2_5_coder`). As long as it is shown the tools it
goes on calling after a result, with transformers' float32 model too (the same tokens); it answers
where the turn after the result has no tools, or is asked for more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.integration.server import serving
from tests.models.conftest import path_of


def tool_of(name: str, description: str, **parameters: str) -> dict[str, Any]:
    """A function whose parameters are texts, each with its description."""
    properties = {key: {"type": "string", "description": said} for key, said in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


WEATHER = tool_of("get_weather", "Get the current weather in a city.", city="The city")
STOCK = tool_of("get_stock_price", "Get the latest price of a stock.", symbol="The ticker symbol")
CLOCK = tool_of("get_current_time", "Get the current time in a city.", city="The city")
SYSTEM = (
    "You are a helpful assistant with access to tools. When you have the result of a tool, answer "
    "the question in one sentence."
)
FLAGS = (
    "--enable-auto-tool-choice",
    "--tool-call-parser",
    "qwen2_5_coder",
    "--exclude-tools-when-tool-choice-none",
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    log = tmp_path_factory.mktemp("coder") / "log"
    path = str(path_of("qwen2.5-coder-0.5b"))
    with serving(log, "--max-model-len", "2048", *FLAGS, model=path) as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as made:
            yield made


def streamed(client: openai.OpenAI, messages: list[Any], **fields: Any) -> Any:
    """The choice that the client's streaming helper makes of the events."""
    fields = {"tools": [WEATHER], "temperature": 0, "max_tokens": 200, **fields}
    with client.chat.completions.stream(model="", messages=messages, **fields) as stream:
        stream.until_done()
        (choice,) = stream.get_final_completion().choices
    return choice


@pytest.mark.parametrize(
    ("tool", "question", "arguments", "result", "told"),
    [
        (
            WEATHER,
            "What is the weather in Paris?",
            {"city": "Paris"},
            {"temperature": 18, "unit": "celsius", "condition": "light rain"},
            ("18 degrees", "rain", "Paris"),
        ),
        (
            STOCK,
            "What is the current price of AAPL stock?",
            {"symbol": "AAPL"},
            {"symbol": "AAPL", "price": 213.55, "currency": "USD"},
            ("213.55", "AAPL"),
        ),
        (
            CLOCK,
            "What time is it in Tokyo?",
            {"city": "Tokyo"},
            {"city": "Tokyo", "time": "14:35"},
            ("14:35", "Tokyo"),
        ),
    ],
    ids=["weather", "stock", "clock"],
)
def test_it_calls_a_tool_by_itself_and_answers_after_the_result(
    client: openai.OpenAI,
    tool: dict[str, Any],
    question: str,
    arguments: dict[str, str],
    result: dict[str, Any],
    told: tuple[str, ...],
) -> None:
    messages: list[Any] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": question},
    ]
    asked = streamed(client, messages, tools=[tool])  # tool_choice is auto
    assert asked.finish_reason == "tool_calls"
    (call,) = asked.message.tool_calls
    assert call.function.name == tool["function"]["name"]
    assert json.loads(call.function.arguments) == arguments
    assert not asked.message.content
    messages += [
        asked.message.model_dump(include={"role", "content", "tool_calls"}),
        {"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)},
    ]
    # how an agent asks for the answer: no more calls, or no more tools
    last_turns = {"tool_choice": "none", "tools": [tool]}, {"tools": openai.omit}
    answers = [streamed(client, messages, **last_turn) for last_turn in last_turns]
    for answered in answers:
        assert answered.finish_reason == "stop"
        assert not answered.message.tool_calls
        assert all(text in answered.message.content for text in told)
    assert answers[0].message.content == answers[1].message.content


@pytest.mark.parametrize("system", [None, "You are a helpful assistant."])
def test_it_answers_with_the_tools_in_sight_when_asked_once_more(
    client: openai.OpenAI, system: str | None
) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    asked = streamed(client, messages)
    assert asked.finish_reason == "tool_calls"
    (call,) = asked.message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    assert not asked.message.content
    messages += [
        asked.message.model_dump(include={"role", "content", "tool_calls"}),
        {"role": "tool", "tool_call_id": call.id, "content": "18 degrees Celsius, light rain"},
        {"role": "user", "content": "So what is the weather like? Tell me in a sentence."},
    ]
    answered = streamed(client, messages)
    assert answered.finish_reason == "stop"
    assert not answered.message.tool_calls
    assert "18 degrees" in answered.message.content
    assert "Paris" in answered.message.content


def test_it_talks_when_there_is_nothing_to_call(client: openai.OpenAI) -> None:
    choice = streamed(client, [{"role": "user", "content": "Hello, who are you?"}])
    assert choice.finish_reason == "stop"
    assert not choice.message.tool_calls
    assert choice.message.content


@pytest.mark.parametrize(
    ("tool_choice", "reason"),
    [
        ("required", "tool_calls"),
        ({"type": "function", "function": {"name": "get_weather"}}, "stop"),
    ],
)
def test_a_call_that_is_demanded_has_the_arguments_of_the_schema(
    client: openai.OpenAI, tool_choice: Any, reason: str
) -> None:
    messages = [{"role": "user", "content": "I am in Rome and it looks grey."}]
    choice = streamed(client, messages, tool_choice=tool_choice, parallel_tool_calls=False)
    assert choice.finish_reason == reason
    (call,) = choice.message.tool_calls
    arguments = json.loads(call.function.arguments)
    assert isinstance(arguments["city"], str)
