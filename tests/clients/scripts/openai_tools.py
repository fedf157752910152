"""The official Python client with tools: forced ones by grammar, and those a model asks for itself.

Runs in: an environment with `openai`.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import openai
from proofs import check, target
from pydantic import BaseModel, Field

client = openai.OpenAI(base_url=target.url, api_key=target.key, max_retries=0)
MODEL = target.model
ASK: Any = [{"role": "user", "content": "What is the weather in Paris? Use the tool."}]
COMMON: Any = {"model": MODEL, "temperature": 0, "max_tokens": 200}
CITIES = ("Paris", "London")


class get_weather(BaseModel):  # noqa: N801 - the class's name is the tool's
    """Get the current weather of a city."""

    city: Literal["Paris", "London"]
    days: int = Field(ge=0, le=9)


class set_alarm(BaseModel):  # noqa: N801
    """Set an alarm."""

    hour: int = Field(ge=0, le=23)


TOOLS: Any = [openai.pydantic_function_tool(get_weather), openai.pydantic_function_tool(set_alarm)]
PLAIN: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the current weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "The city's name"}},
                "required": ["city"],
            },
        },
    }
]
THANKS: Any = {"role": "user", "content": "Thank you. So, in one sentence, how is the weather?"}
NAMED: Any = {"type": "function", "function": {"name": "get_weather"}}


@check("tools: a named tool is called; a stream adds up to the whole call", "small", "coder")
def named() -> None:
    ask: Any = {"messages": ASK, "tools": TOOLS, "tool_choice": NAMED, **COMMON}
    whole = client.chat.completions.create(**ask).choices[0]
    assert whole.message.tool_calls is not None
    (call,) = whole.message.tool_calls
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments)["city"] in CITIES
    ids, names, arguments, finish = [], [], "", None
    for chunk in client.chat.completions.create(stream=True, **ask):
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            for delta in choice.delta.tool_calls or []:
                assert delta.index == 0
                assert delta.function is not None
                ids += [delta.id] if delta.id else []
                names += [delta.function.name] if delta.function.name else []
                arguments += delta.function.arguments or ""
    assert len(ids) == 1
    assert names == ["get_weather"]
    assert arguments == call.function.arguments
    assert finish == whole.finish_reason


@check(
    "tools: required makes the model call one of them, parallel_tool_calls=False no more",
    "small",
    "coder",
)
def required() -> None:
    reply = client.chat.completions.create(
        messages=ASK,
        tools=TOOLS,
        tool_choice="required",
        parallel_tool_calls=False,
        **COMMON,
    )
    assert reply.choices[0].finish_reason == "tool_calls"
    calls = reply.choices[0].message.tool_calls
    assert calls is not None
    (call,) = calls
    assert call.type == "function"
    assert call.function.name in {"get_weather", "set_alarm"}
    assert isinstance(json.loads(call.function.arguments), dict)


@check("tools: none lets the model answer in words", "small", "coder")
def none() -> None:
    reply = client.chat.completions.create(messages=ASK, tools=PLAIN, tool_choice="none", **COMMON)
    assert not reply.choices[0].message.tool_calls
    assert reply.choices[0].message.content


@check("parse with tools: the arguments as an instance of the pydantic model", "small", "coder")
def parse() -> None:
    reply = client.chat.completions.parse(messages=ASK, tools=TOOLS, tool_choice=NAMED, **COMMON)
    assert reply.choices[0].message.tool_calls is not None
    (call,) = reply.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, get_weather)


@check("streaming helper with a forced tool: argument deltas and done", "small", "coder")
def stream_forced() -> None:
    deltas, done = "", []
    with client.chat.completions.stream(
        messages=ASK, tools=TOOLS, tool_choice=NAMED, **COMMON
    ) as stream:
        for event in stream:
            if event.type == "tool_calls.function.arguments.delta":
                deltas += event.arguments_delta
            elif event.type == "tool_calls.function.arguments.done":
                done.append(event)
        final = stream.get_final_completion()
    (event,) = done
    assert event.name == "get_weather"
    assert event.arguments == deltas
    assert isinstance(event.parsed_arguments, get_weather)
    assert final.choices[0].message.tool_calls is not None


@check("tools: auto, the model calls through the streaming helper, then answers", "coder")
def auto() -> None:
    messages: list[Any] = [*ASK]
    with client.chat.completions.stream(messages=messages, tools=PLAIN, **COMMON) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    choice = final.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert "tool_calls.function.arguments.done" in kinds
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.function.name == "get_weather"
    assert "Paris" in json.loads(call.function.arguments)["city"]
    messages.append(choice.message.model_dump(exclude_none=True))
    result = {"temperature_celsius": 21, "sky": "sunny"}
    messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
    messages.append(THANKS)  # without a question it calls the tool again: it is small
    answer = client.chat.completions.create(messages=messages, tools=PLAIN, **COMMON).choices[0]
    assert answer.finish_reason == "stop"
    assert "21" in (answer.message.content or "")


@check("tools: auto, whole reply equal to the streamed one", "coder")
def auto_whole() -> None:
    whole = client.chat.completions.create(messages=ASK, tools=PLAIN, **COMMON).choices[0]
    with client.chat.completions.stream(messages=ASK, tools=PLAIN, **COMMON) as stream:
        streamed = stream.get_final_completion().choices[0]
    assert whole.message.tool_calls is not None
    assert streamed.message.tool_calls is not None
    assert [c.function.arguments for c in whole.message.tool_calls if c.type == "function"] == [
        call.function.arguments for call in streamed.message.tool_calls
    ]
    assert not whole.message.content
    assert not streamed.message.content


if __name__ == "__main__":
    check.main()
