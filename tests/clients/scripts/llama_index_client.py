"""LlamaIndex's `OpenAILike`. Runs in: an environment with `llama-index-llms-openai-like`."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from proofs import check, target
from pydantic import BaseModel

COMMON: Any = {
    "model": target.model,
    "api_base": target.url,
    "api_key": target.key,
    "temperature": 0,
    "max_retries": 0,
    "context_window": 8192,
}
chat_model = OpenAILike(is_chat_model=True, max_tokens=24, **COMMON)
tool_model = OpenAILike(
    is_chat_model=True,
    is_function_calling_model=True,
    strict=True,  # it tells the server not to keep to the schemas of tools otherwise
    max_tokens=200,
    **COMMON,
)
HI = [ChatMessage(role="user", content="What is the capital of France?")]


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "London"]
    is_capital: bool


def get_weather(city: str) -> str:
    """Get the current weather of a city."""
    return f"It is 21 degrees and sunny in {city}."


TOOL = FunctionTool.from_defaults(get_weather)


@check("chat, stream_chat, achat and astream_chat agree")
def chat() -> None:
    whole = chat_model.chat(HI).message.content
    assert whole
    assert "".join(chunk.delta or "" for chunk in chat_model.stream_chat(HI)) == whole

    async def asynchronous() -> list[str | None]:
        stream = await chat_model.astream_chat(HI)
        streamed = "".join([chunk.delta or "" async for chunk in stream])
        return [(await chat_model.achat(HI)).message.content, streamed]

    assert asyncio.run(asynchronous()) == [whole, whole]


@check("complete and stream_complete, of a chat model and of a text model")
def complete() -> None:
    text_model = OpenAILike(is_chat_model=False, max_tokens=16, **COMMON)
    for model in (text_model, chat_model):
        whole = model.complete("The sky is").text
        assert whole
        assert "".join(chunk.delta or "" for chunk in model.stream_complete("The sky is")) == whole


@check("structured output: response_format with a schema of pydantic's")
def structured() -> None:
    schema = {"name": "City", "schema": City.model_json_schema()}
    reply = tool_model.chat(
        HI, response_format={"type": "json_schema", "json_schema": schema}, max_tokens=100
    )
    City.model_validate_json(reply.message.content or "")


@check("chat_with_tools: a required tool, whole and streamed", "small", "coder")
def forced() -> None:
    reply = tool_model.chat_with_tools([TOOL], user_msg="Weather in Paris?", tool_required=True)
    calls = tool_model.get_tool_calls_from_response(reply)
    assert {call.tool_name for call in calls} == {"get_weather"}
    *_, last = tool_model.stream_chat_with_tools(
        [TOOL], user_msg="Weather in Paris?", tool_required=True
    )
    streamed = tool_model.get_tool_calls_from_response(last)
    assert [call.tool_kwargs for call in streamed] == [call.tool_kwargs for call in calls]


@check("as_structured_llm: a pydantic model by a tool that must be called", "small", "coder")
def structured_by_tool() -> None:
    reply = tool_model.as_structured_llm(City).chat(HI)
    assert isinstance(reply.raw, City)


@check("predict_and_call: the model calls a tool by itself, which is run", "coder")
def auto() -> None:
    question = "What is the weather in Paris? Use the tool."
    reply = tool_model.predict_and_call([TOOL], user_msg=question)
    assert "21 degrees" in str(reply.response)


if __name__ == "__main__":
    check.main()
