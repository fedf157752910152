"""The official client, over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from tests.api.test_server import running
from tests.fakes.api import Api
from tests.fakes.fake_async_llm import Script, reversed_prompt, saying

USER: Any = [{"role": "user", "content": "hi"}]
KEY = "sk-test"


@asynccontextmanager
async def client_of(
    script: Script = reversed_prompt, *, key: str = KEY, **config: Any
) -> AsyncIterator[tuple[openai.AsyncOpenAI, Api]]:
    async with running(script, api_keys=[KEY], **config) as (api, address, _):
        url = f"http://{address[0]}:{address[1]}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:
            yield client, api


async def read_all(stream: Any) -> None:
    async for _ in stream:
        pass


def test_chat_whole_and_streamed() -> None:
    async def main() -> None:
        async with client_of(saying("hello there")) as (client, _):
            whole = await client.chat.completions.create(model="small", messages=USER)
            assert whole.choices[0].message.content == "hello there"
            assert whole.choices[0].finish_reason == "stop"
            assert whole.usage is not None
            text, reasons, usage = "", [], None
            stream = await client.chat.completions.create(
                model="small", messages=USER, stream=True, stream_options={"include_usage": True}
            )
            async for chunk in stream:
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    reasons.append(choice.finish_reason)
                usage = chunk.usage
            assert text == "hello there"
            assert reasons[-1] == "stop"
            assert usage == whole.usage

    asyncio.run(main())


def test_chat_logprobs_are_typed() -> None:
    async def main() -> None:
        async with client_of(saying("ab")) as (client, _):
            reply = await client.chat.completions.create(
                model="small", messages=USER, logprobs=True, top_logprobs=2
            )
            logprobs = reply.choices[0].logprobs
            assert logprobs is not None
            assert logprobs.content is not None
            assert [t.token for t in logprobs.content[:2]] == ["a", "b"]
            assert len(logprobs.content[0].top_logprobs) == 2

    asyncio.run(main())


def test_completion_whole_and_streamed() -> None:
    async def main() -> None:
        async with client_of(saying("xyz")) as (client, _):
            whole = await client.completions.create(model="small", prompt=["a", "b"], logprobs=1)
            assert [choice.text for choice in whole.choices] == ["xyz", "xyz"]
            assert whole.choices[0].logprobs is not None
            stream = await client.completions.create(model="small", prompt="a", stream=True)
            assert "".join([c.choices[0].text async for c in stream]) == "xyz"

    asyncio.run(main())


def test_models() -> None:
    async def main() -> None:
        async with client_of() as (client, _):
            assert [model.id async for model in client.models.list()] == ["small", "org/small-2"]
            assert (await client.models.retrieve("small")).id == "small"

    asyncio.run(main())


def test_errors_become_the_clients_exceptions() -> None:
    async def main() -> None:
        async with client_of() as (client, api):
            create = client.chat.completions.create
            with pytest.raises(openai.BadRequestError) as bad:
                await create(model="small", messages=USER, temperature=9)
            assert bad.value.param == "temperature"
            with pytest.raises(openai.NotFoundError) as missing:
                await create(model="nope", messages=USER)
            assert missing.value.code == "model_not_found"
            await api.llm.drain(1)
            with pytest.raises(openai.InternalServerError) as busy:
                await create(model="small", messages=USER)
            assert busy.value.status_code == 503
        async with client_of(key="wrong") as (client, _):
            with pytest.raises(openai.AuthenticationError):
                await client.models.list()

    asyncio.run(main())


def test_an_error_in_a_stream_is_raised_by_the_client() -> None:
    async def main() -> None:
        async with client_of(saying("abcdef")) as (client, api):
            api.core.hold()
            api.core.step(2)
            stream = await client.chat.completions.create(model="small", messages=USER, stream=True)
            first = await anext(stream)
            assert first.choices[0].delta.role == "assistant"
            api.core.die("The core was killed.")
            with pytest.raises(openai.APIError, match="was killed"):
                await read_all(stream)

    asyncio.run(main())


def test_closing_a_stream_aborts() -> None:
    async def main() -> None:
        async with client_of(saying("abcdef")) as (client, api):
            api.core.hold()
            api.core.step(2)
            stream = await client.chat.completions.create(model="small", messages=USER, stream=True)
            await stream.close()
            async with asyncio.timeout(5):
                while api.core.num_running:
                    await asyncio.sleep(0)
            api.core.release()

    asyncio.run(main())
