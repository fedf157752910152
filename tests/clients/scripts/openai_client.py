"""The official Python client, majors 2 and 3: chat, completions, typed replies, errors, leaving.

Tools are in `openai_tools.py`. Runs in: an environment with `openai`.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import openai
from proofs import check, target
from pydantic import BaseModel, Field

client = openai.OpenAI(base_url=target.url, api_key=target.key, max_retries=0)
MODEL = target.model
HI: Any = [{"role": "user", "content": "What is the capital of Japan?"}]
GREEDY: Any = {"model": MODEL, "temperature": 0, "max_tokens": 24}


class City(BaseModel):
    """What a reply must look like: short whatever a small model writes."""

    name: Literal["Paris", "London"]
    is_capital: bool
    million_people: int = Field(ge=0, le=40)


def async_client() -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=target.url, api_key=target.key, max_retries=0)


# ---- chat


@check("models: list and retrieve")
def models() -> None:
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).object == "model"


@check("chat: a stream adds up to the whole reply, its last chunk has the usage")
def chat() -> None:
    whole = client.chat.completions.create(messages=HI, **GREEDY)
    assert whole.choices[0].message.role == "assistant"
    assert whole.usage is not None
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    text, reasons, usages = "", [], []
    for chunk in client.chat.completions.create(
        messages=HI, stream=True, stream_options={"include_usage": True}, **GREEDY
    ):
        assert chunk.id
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
        reasons += [c.finish_reason for c in chunk.choices if c.finish_reason]
        usages.append(chunk.usage)
    assert text == whole.choices[0].message.content
    assert reasons == [whole.choices[0].finish_reason]
    assert usages[-1] is not None
    assert usages[-1].total_tokens == whole.usage.total_tokens
    assert not any(usages[:-1])


@check("chat: n, seed, stop, max_completion_tokens, developer role, text parts")
def chat_fields() -> None:
    messages: Any = [
        {"role": "developer", "content": "Answer briefly."},
        {"role": "user", "content": [{"type": "text", "text": "Count to ten: 1, 2,"}]},
    ]
    ask: Any = {"model": MODEL, "messages": messages, "max_completion_tokens": 16, "n": 2}
    first = client.chat.completions.create(seed=7, temperature=1.0, **ask)
    again = client.chat.completions.create(seed=7, temperature=1.0, **ask)
    texts = [choice.message.content for choice in first.choices]
    assert [choice.index for choice in first.choices] == [0, 1]
    assert texts == [choice.message.content for choice in again.choices]
    assert texts[0] != texts[1]
    whole = client.chat.completions.create(messages=HI, **GREEDY).choices[0].message.content or ""
    word = whole.split()[2]
    cut = client.chat.completions.create(messages=HI, stop=[word], **GREEDY).choices[0]
    assert cut.finish_reason == "stop"
    assert word not in (cut.message.content or "")


@check("chat: logprobs of the tokens and of their alternatives")
def chat_logprobs() -> None:
    reply = client.chat.completions.create(messages=HI, logprobs=True, top_logprobs=3, **GREEDY)
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert reply.usage is not None
    assert len(logprobs.content) >= reply.usage.completion_tokens - 1
    for token in logprobs.content:
        assert len(token.top_logprobs) == 3
        assert token.logprob == max(top.logprob for top in token.top_logprobs)
    joined = b"".join(bytes(token.bytes or []) for token in logprobs.content)
    assert joined.decode().startswith(reply.choices[0].message.content or "?")


@check("streaming helper: events, snapshot, final completion")
def stream_helper() -> None:
    whole = client.chat.completions.create(messages=HI, **GREEDY)
    kinds: list[str] = []
    text = ""
    with client.chat.completions.stream(
        messages=HI, stream_options={"include_usage": True}, logprobs=True, **GREEDY
    ) as stream:
        for event in stream:
            kinds.append(event.type)
            if event.type == "content.delta":
                text += event.delta
                assert event.snapshot == text
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done", "logprobs.content.delta"} <= set(kinds)
    assert text == whole.choices[0].message.content == final.choices[0].message.content
    assert final.usage == whole.usage


@check("parse: a pydantic model in, an instance out")
def parse() -> None:
    reply = client.chat.completions.parse(messages=HI, response_format=City, **GREEDY | LONG)
    assert isinstance(reply.choices[0].message.parsed, City)


@check("streaming helper with a pydantic model: parsed snapshots and an instance at the end")
def stream_parse() -> None:
    with client.chat.completions.stream(
        messages=HI, response_format=City, **GREEDY | LONG
    ) as stream:
        parsed = [event.parsed for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert any(isinstance(one, dict) for one in parsed)
    assert isinstance(final.choices[0].message.parsed, City)


LONG = {"max_tokens": 200}


@check("parse: a reply cut by max_tokens raises LengthFinishReasonError")
def parse_cut() -> None:
    with raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(messages=HI, response_format=City, **GREEDY | SHORT)


SHORT = {"max_tokens": 3}


@check("json_object, and fields of vLLM through extra_body")
def extra_body() -> None:
    choices = ["yes", "no"]
    reply = client.chat.completions.create(
        messages=HI,
        extra_body={"structured_outputs": {"choice": choices}, "top_k": 5, "min_p": 0.01},
        **GREEDY,
    )
    assert reply.choices[0].message.content in choices
    reply = client.chat.completions.create(
        messages=HI, response_format={"type": "json_object"}, **GREEDY | LONG
    )
    assert (reply.choices[0].message.content or "").lstrip().startswith("{")


# ---- completions


@check("completions: text, a list, token ids, a list of ids; streamed equals whole")
def completions() -> None:
    ids = [504, 2521, 314]
    for prompt in ("The sky is", ["The sky is", "The sea is"], ids, [ids, ids[:2]]):
        whole = client.completions.create(prompt=prompt, **GREEDY)
        texts = [""] * len(whole.choices)
        for chunk in client.completions.create(prompt=prompt, stream=True, **GREEDY):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
        assert texts == [choice.text for choice in whole.choices]
        is_many = isinstance(prompt, list) and not isinstance(prompt[0], int)
        assert len(texts) == (len(prompt) if is_many else 1)


@check("completions: echo with logprobs of the prompt and no new token")
def echo() -> None:
    reply = client.completions.create(
        model=MODEL, prompt="The sky is blue", echo=True, logprobs=2, max_tokens=0
    )
    choice = reply.choices[0]
    assert choice.text == "The sky is blue"
    assert choice.logprobs is not None
    assert choice.logprobs.token_logprobs is not None
    assert choice.logprobs.token_logprobs[0] is None
    assert all(value <= 0 for value in choice.logprobs.token_logprobs[1:])
    assert "".join(choice.logprobs.tokens or []) == choice.text


# ---- errors and leaving


class raises:  # noqa: N801 - named as pytest's, which is not in this environment
    """Asserts that the block raises `kind`; the exception is `value`."""

    def __init__(self, kind: type[Exception]) -> None:
        self.kind = kind
        self.value: Any = None

    def __enter__(self) -> raises:
        return self

    def __exit__(self, kind: Any, value: Any, _: Any) -> bool:
        assert kind is not None, f"{self.kind.__name__} was not raised"
        self.value = value
        return issubclass(kind, self.kind)


@check("errors: 400, 401, 404 and a prompt that is too long become the client's exceptions")
def errors() -> None:
    with raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model=MODEL, messages=HI, temperature=9)
    assert bad.value.param == "temperature"
    assert bad.value.type == "BadRequestError"
    with raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="nope", messages=HI)
    assert missing.value.code == "model_not_found"
    with raises(openai.AuthenticationError):
        client.with_options(api_key="sk-wrong").models.list()
    with raises(openai.BadRequestError) as long:
        client.completions.create(model=MODEL, prompt="word " * 20_000)
    assert "context length" in str(long.value)
    with raises(openai.BadRequestError):
        client.chat.completions.create(model=MODEL, messages=HI, stream=True, max_tokens=-1)


@check("raw responses: headers with the request id, lines of a stream")
def raw_responses() -> None:
    raw = client.chat.completions.with_raw_response.create(messages=HI, **GREEDY)
    assert raw.parse().choices[0].message.content
    assert raw.headers["content-type"].startswith("application/json")
    with client.chat.completions.with_streaming_response.create(
        messages=HI, stream=True, **GREEDY
    ) as reply:
        lines = [line for line in reply.iter_lines() if line]
    assert lines[0].startswith("data: {")
    assert lines[-1] == "data: [DONE]"


@check("a closed stream and a timeout end their requests")
def leaving() -> None:
    ask: Any = {"model": MODEL, "prompt": "Once", "max_tokens": 4000}
    ignore_eos = {"ignore_eos": True}
    with client.completions.create(stream=True, extra_body=ignore_eos, **ask) as stream:
        next(iter(stream))
    target.wait_idle()
    with raises(openai.APITimeoutError):
        client.with_options(timeout=0.5).completions.create(extra_body=ignore_eos, **ask)
    target.wait_idle()


# ---- async


@check("async: eight chats at a time, each as when it is alone; a stream; the streaming helper")
async def asynchronous() -> None:
    async with async_client() as asyncs:
        questions = [f"What is {n} + {n}?" for n in range(8)]

        async def ask(question: str) -> str:
            messages: Any = [{"role": "user", "content": question}]
            reply = await asyncs.chat.completions.create(messages=messages, **GREEDY)
            return reply.choices[0].message.content or ""

        together = await asyncio.gather(*(ask(question) for question in questions))
        alone = [await ask(question) for question in questions]
        assert together == alone
        whole = await asyncs.chat.completions.create(messages=HI, **GREEDY)
        expected = whole.choices[0].message.content
        stream = await asyncs.chat.completions.create(messages=HI, stream=True, **GREEDY)
        assert "".join([c.choices[0].delta.content or "" async for c in stream]) == expected
        async with asyncs.chat.completions.stream(messages=HI, **GREEDY) as helper:
            final = await helper.get_final_completion()
        assert final.choices[0].message.content == expected
        parsed = await asyncs.chat.completions.parse(
            messages=HI, response_format=City, **GREEDY | LONG
        )
        assert parsed.choices[0].message.parsed is not None


@check("async: a cancelled task ends its request")
async def cancelled() -> None:
    async with async_client() as asyncs:
        call = asyncs.completions.create(
            model=MODEL, prompt="Once", max_tokens=4000, extra_body={"ignore_eos": True}
        )
        task = asyncio.create_task(call)
        while not target.metric("vllm:num_requests_running"):
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
    target.wait_idle()


if __name__ == "__main__":
    check.main()
