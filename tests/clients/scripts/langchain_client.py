"""LangChain's `ChatOpenAI` and `OpenAI`. Runs in: an environment with `langchain-openai`."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from proofs import check, target
from pydantic import BaseModel, Field

COMMON: Any = {
    "model": target.model,
    "base_url": target.url,
    "api_key": target.key,
    "temperature": 0,
    "max_retries": 0,
}
chat = ChatOpenAI(max_tokens=24, **COMMON)
long_chat = ChatOpenAI(max_tokens=200, **COMMON)
MESSAGES = [SystemMessage("Answer briefly."), HumanMessage("What is the capital of France?")]


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "London"] = Field(description="name of the city")
    is_capital: bool


@tool
def get_weather(city: str) -> str:
    """Get the current weather of a city."""
    return f"It is 21 degrees and sunny in {city}."


@check("ChatOpenAI: invoke with usage; stream and astream equal it; batch")
def invoke() -> None:
    whole = chat.invoke(MESSAGES)
    assert whole.usage_metadata is not None
    chunks = list(chat.stream(MESSAGES, stream_usage=True))
    assert "".join(chunk.text for chunk in chunks) == whole.text
    total: Any = chunks[0]
    for chunk in chunks[1:]:
        total = total + chunk
    assert total.usage_metadata["total_tokens"] == whole.usage_metadata["total_tokens"]

    async def streamed() -> str:
        return "".join([chunk.text async for chunk in chat.astream(MESSAGES)])

    assert asyncio.run(streamed()) == whole.text
    replies = chat.batch([MESSAGES, "Say hello."])
    assert replies[0].text == whole.text


@check("ChatOpenAI: logprobs and finish reason in the metadata")
def metadata() -> None:
    reply = chat.bind(logprobs=True, top_logprobs=2).invoke(MESSAGES)
    assert reply.response_metadata["finish_reason"] in {"stop", "length"}
    assert len(reply.response_metadata["logprobs"]["content"][0]["top_logprobs"]) == 2


@check("with_structured_output: method json_schema, whole and streamed; json_mode")
def structured() -> None:
    structured = long_chat.with_structured_output(City, method="json_schema")
    assert isinstance(structured.invoke(MESSAGES), City)
    assert isinstance(list(structured.stream(MESSAGES))[-1], City)
    as_dict = long_chat.with_structured_output(None, method="json_mode")
    assert isinstance(as_dict.invoke("Reply with a JSON object with the key a."), dict)


@check("OpenAI (completions): invoke, stream, several prompts")
def completions() -> None:
    model = OpenAI(max_tokens=12, **COMMON)
    whole = model.invoke("The sky is")
    assert "".join(model.stream("The sky is")) == whole
    generations = model.generate(["The sky is", "The sea is"]).generations
    assert generations[0][0].text == whole
    assert len(generations) == 2


@check("with_structured_output: method function_calling", "small", "coder")
def function_calling() -> None:
    structured = long_chat.with_structured_output(City, method="function_calling")
    assert isinstance(structured.invoke(MESSAGES), City)


@check("bind_tools: a forced call, whole and streamed", "small", "coder")
def forced() -> None:
    bound = long_chat.bind_tools([get_weather], tool_choice="get_weather")
    reply = bound.invoke("What is the weather in Paris?")
    assert isinstance(reply, AIMessage)
    assert [call["name"] for call in reply.tool_calls] == ["get_weather"]
    total: Any = None
    for chunk in bound.stream("What is the weather in Paris?"):
        total = chunk if total is None else total + chunk
    assert [call["args"] for call in total.tool_calls] == [
        call["args"] for call in reply.tool_calls
    ]


@check("bind_tools: the model calls a tool by itself and answers after its result", "coder")
def auto() -> None:
    bound = long_chat.bind_tools([get_weather])
    messages: list[Any] = [HumanMessage("What is the weather in Paris? Use the tool.")]
    reply = bound.invoke(messages)
    (call,) = reply.tool_calls
    result = get_weather.invoke(call)
    assert isinstance(result, ToolMessage)
    # without a question a small model calls the tool again
    thanks = HumanMessage("Thank you. So, in one sentence, how is the weather?")
    answer = bound.invoke([*messages, reply, result, thanks])
    assert not answer.tool_calls
    assert "21" in answer.text


if __name__ == "__main__":
    check.main()
