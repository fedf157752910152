"""LiteLLM: its `openai/` and `hosted_vllm/` providers, and its mapping of errors.

Runs in: an environment with `litellm`.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import litellm
from proofs import check, target
from pydantic import BaseModel

litellm.telemetry = False
HI: Any = [{"role": "user", "content": "What is the capital of France?"}]
COMMON: Any = {
    "model": f"openai/{target.model}",
    "api_base": target.url,
    "api_key": target.key,
    "temperature": 0,
    "max_tokens": 24,
    "num_retries": 0,
}
HOSTED = COMMON | {"model": f"hosted_vllm/{target.model}"}
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
ASK: Any = [{"role": "user", "content": "What is the weather in Paris? Use the tool."}]


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "London"]
    is_capital: bool


@check("openai/ and hosted_vllm/: whole and streamed chats agree, usage in the stream")
def chat() -> None:
    texts = []
    for common in (COMMON, HOSTED):
        whole = litellm.completion(messages=HI, **common)
        texts.append(whole.choices[0].message.content)
        chunks = list(
            litellm.completion(
                messages=HI, stream=True, stream_options={"include_usage": True}, **common
            )
        )
        rebuilt = litellm.stream_chunk_builder(chunks, messages=HI)
        assert rebuilt.choices[0].message.content == texts[-1]
        assert rebuilt.usage.total_tokens == whole.usage.total_tokens
        assert whole.choices[0].finish_reason == rebuilt.choices[0].finish_reason
    assert texts[0] == texts[1]


@check("acompletion, whole and streamed")
async def asynchronous() -> None:
    whole = await litellm.acompletion(messages=HI, **COMMON)
    stream = await litellm.acompletion(messages=HI, stream=True, **COMMON)
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text == whole.choices[0].message.content


@check("text_completion, whole and streamed, a list of prompts")
def text_completion() -> None:
    common = COMMON | {"model": f"text-completion-openai/{target.model}"}
    whole = litellm.text_completion(prompt="The sky is", **common)
    stream = litellm.text_completion(prompt="The sky is", stream=True, **common)
    assert "".join(chunk.choices[0].text or "" for chunk in stream) == whole.choices[0].text
    several = litellm.text_completion(prompt=["The sky is", "The sea is"], **common)
    assert several.choices[0].text == whole.choices[0].text
    assert len(several.choices) == 2


@check("response_format: a pydantic model; fields of vLLM pass through")
def structured() -> None:
    for common in (COMMON, HOSTED):
        fields = common | {"max_tokens": 100}
        reply = litellm.completion(messages=HI, response_format=City, **fields)
        City.model_validate_json(reply.choices[0].message.content)
    extra = {"structured_outputs": {"choice": ["yes", "no"]}, "top_k": 3}
    reply = litellm.completion(messages=HI, extra_body=extra, **HOSTED)
    assert reply.choices[0].message.content in {"yes", "no"}


@check("errors: 400, 401, 404 and a too long prompt are LiteLLM's exceptions")
def errors() -> None:
    cases: list[tuple[type[Exception], dict[str, Any]]] = [
        (litellm.BadRequestError, {"temperature": 9}),
        (litellm.AuthenticationError, {"api_key": "sk-wrong"}),
        (litellm.NotFoundError, {"model": "openai/nope"}),
        (
            litellm.ContextWindowExceededError,
            {"messages": [{"role": "user", "content": "word " * 20_000}]},
        ),
    ]
    for kind, fields in cases:
        try:
            litellm.completion(**{"messages": HI, **COMMON, **fields})
        except kind:
            continue
        raise AssertionError(f"{kind.__name__} was not raised for {str(fields)[:60]}")


@check("Router: two deployments, one of them gone: the request goes to the other")
def router() -> None:
    dead = COMMON | {"api_base": "http://127.0.0.1:9/v1"}
    params = [{k: v for k, v in one.items() if k != "num_retries"} for one in (dead, COMMON)]
    deployments = [{"model_name": name, "litellm_params": one}
                   for name, one in zip(("dead", "live"), params, strict=True)]  # fmt: skip
    found = litellm.Router(
        model_list=deployments, fallbacks=[{"dead": ["live"]}], num_retries=0
    ).completion(model="dead", messages=HI)
    assert found.choices[0].message.content


@check("a forced tool, whole and streamed, through both providers", "small", "coder")
def forced() -> None:
    choice: Any = {"type": "function", "function": {"name": "get_weather"}}
    for common in (COMMON, HOSTED):
        ask = common | {"tools": [WEATHER], "tool_choice": choice, "max_tokens": 100}
        (call,) = litellm.completion(messages=ASK, **ask).choices[0].message.tool_calls
        assert call.function.name == "get_weather"
        assert "city" in json.loads(call.function.arguments)
        chunks = list(litellm.completion(messages=ASK, stream=True, **ask))
        rebuilt = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
        assert rebuilt[0].function.arguments == call.function.arguments


@check("the model calls a tool by itself and answers after its result", "coder")
def auto() -> None:
    ask = HOSTED | {"tools": [WEATHER], "max_tokens": 100}
    choice = litellm.completion(messages=ASK, **ask).choices[0]
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "21 degrees, sunny"}
    # without a question a small model calls the tool again
    thanks = {"role": "user", "content": "Thank you. So, in one sentence, how is the weather?"}
    messages = [*ASK, choice.message.model_dump(), result, thanks]
    answer = litellm.completion(messages=messages, **ask)
    assert "21" in answer.choices[0].message.content


if __name__ == "__main__":
    check.main()
