"""The official client on replies with tool calls and reasoning, over a real connection."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.api.test_openai_client import USER, client_of
from tests.api.test_tools import ADD, NAMED, TOOLS, WEATHER, parsers
from tests.fakes.fake_async_llm import Script, saying

#: additions to OpenAI's chunks that the client's types do not know
EXTRA_DELTA = {"reasoning", "reasoning_content"}
OPTIONS = {"enable_auto_tool_choice": True}


def client(script: Script, reasoning: str | None = None) -> Any:
    return client_of(script, parsers=parsers("hermes", reasoning), **OPTIONS)


async def checked_chunks(client: openai.AsyncOpenAI, **fields: Any) -> list[ChatCompletionChunk]:
    """A stream, every chunk of which has the client's types strictly."""
    stream = await client.chat.completions.create(
        model="small", messages=USER, stream=True, **fields
    )
    chunks = [chunk async for chunk in stream]
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk.model_dump(exclude_unset=True), strict=True)
        for choice in chunk.choices:
            assert set(choice.delta.model_extra or ()) <= EXTRA_DELTA
            assert choice.delta.model_fields_set <= {"role", "content", "tool_calls", *EXTRA_DELTA}
    return chunks


def test_every_chunk_of_a_call_has_the_types_of_the_client() -> None:
    async def main() -> None:
        async with client(saying(f"{WEATHER}\n{ADD}")) as (made, _):
            for choice in ("auto", "required", NAMED):
                chunks = await checked_chunks(made, tools=TOOLS, tool_choice=choice)
                reasons = [c.finish_reason for chunk in chunks for c in chunk.choices]
                assert reasons[-1] == ("stop" if choice is NAMED else "tool_calls")
            whole = await made.chat.completions.create(model="small", messages=USER, tools=TOOLS)
            ChatCompletion.model_validate(whole.model_dump(exclude_unset=True), strict=True)
            assert whole.choices[0].message.tool_calls is not None
            names = [call.function.name for call in whole.choices[0].message.tool_calls]
            assert names == ["get_weather", "add"]

    asyncio.run(main())


def test_the_streaming_helper_adds_calls_up() -> None:
    async def main() -> None:
        async with client(saying(f"I look.\n{WEATHER}\n{ADD}")) as (made, _):
            async with made.chat.completions.stream(
                model="small", messages=USER, tools=TOOLS
            ) as stream:
                kinds = {event.type async for event in stream}
            assert "tool_calls.function.arguments.delta" in kinds
            assert "tool_calls.function.arguments.done" in kinds
            final = await stream.get_final_completion()
            (choice,) = final.choices
            assert choice.finish_reason == "tool_calls"
            calls = choice.message.tool_calls
            assert calls is not None
            assert [call.function.name for call in calls] == ["get_weather", "add"]
            assert json.loads(calls[0].function.arguments) == {"city": "Paris"}
            assert json.loads(calls[1].function.arguments) == {"a": 1, "b": 2}

    asyncio.run(main())


CUSTOM: Any = {"type": "custom", "custom": {"name": "run_sql"}}
SQL_CALL = (
    '<tool_call>\n{"name": "run_sql", "arguments": {"input": "SELECT \\"a\\""}}\n</tool_call>'
)


def test_the_client_takes_calls_of_custom_tools() -> None:
    async def main() -> None:
        async with client(saying(SQL_CALL)) as (made, _):
            whole = await made.chat.completions.create(model="small", messages=USER, tools=[CUSTOM])
            ChatCompletion.model_validate(whole.model_dump(exclude_unset=True), strict=True)
            calls = whole.choices[0].message.tool_calls
            assert calls is not None
            (call,) = calls
            assert call.type == "custom"
            assert (call.custom.name, call.custom.input) == ("run_sql", 'SELECT "a"')
            again = [*USER, whole.choices[0].message.model_dump(exclude_none=True)]
            again.append({"role": "tool", "tool_call_id": call.id, "content": "1"})
            await made.chat.completions.create(model="small", messages=again, tools=[CUSTOM])
            # the helper `stream` of the client does not know them
            stream = await made.chat.completions.create(
                model="small", messages=USER, tools=[CUSTOM], stream=True
            )
            deltas = [chunk.choices[0].delta async for chunk in stream]
            parts = [part.custom for delta in deltas for part in delta.tool_calls or ()]
            assert parts[0] == {"name": "run_sql", "input": ""}
            assert "".join(part["input"] for part in parts) == 'SELECT "a"'

    asyncio.run(main())


def test_a_reply_of_the_client_can_be_sent_back() -> None:
    async def main() -> None:
        async with client(saying(WEATHER)) as (made, api):
            first = await made.chat.completions.create(model="small", messages=USER, tools=TOOLS)
            message = first.choices[0].message
            assert message.tool_calls is not None
            result: Any = {
                "role": "tool",
                "tool_call_id": message.tool_calls[0].id,
                "content": [{"type": "text", "text": "18 C"}],
            }
            await made.chat.completions.create(
                model="small", messages=[*USER, message, result], tools=TOOLS
            )
            _, past, answer = api.template.calls[-1]["messages"]
            assert past["tool_calls"][0]["function"]["arguments"] == {"city": "Paris"}
            assert answer["content"] == "18 C"

    asyncio.run(main())


def test_reasoning_is_an_extra_of_the_client() -> None:
    async def main() -> None:
        async with client(saying("<think>hm</think>yes"), "qwen3") as (made, _):
            chunks = await checked_chunks(made)
            deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
            for name in EXTRA_DELTA:
                assert "".join(getattr(delta, name, "") for delta in deltas) == "hm"
            whole = await made.chat.completions.create(model="small", messages=USER)
            message: Any = whole.choices[0].message
            assert (message.reasoning, message.reasoning_content, message.content) == (
                "hm",
                "hm",
                "yes",
            )
            assert whole.usage is not None
            assert whole.usage.completion_tokens_details is not None
            num_tokens = whole.usage.completion_tokens_details.reasoning_tokens
            assert num_tokens == len("<think>hm</think")

    asyncio.run(main())
