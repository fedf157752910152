"""`POST /v1/chat/completions/batch`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from octavo.config.server import ServerConfig
from tests.fakes.api import serving
from tests.fakes.asgi_client import Answer, AsgiClient

BATCH = "/v1/chat/completions/batch"


def conversation(*texts: str) -> list[dict[str, str]]:
    return [
        {"role": "user" if index % 2 == 0 else "assistant", "content": text}
        for index, text in enumerate(texts)
    ]


async def ask(client: AsgiClient, *conversations: Any, **fields: Any) -> Answer:
    return await client.post(BATCH, {"messages": list(conversations), **fields})


def test_each_conversation_has_the_choice_it_would_have_alone() -> None:
    async def main() -> None:
        config = ServerConfig(enable_prompt_tokens_details=True)
        async with serving(config) as api:
            texts = ["first", "second one", "3"]
            options: dict[str, Any] = {"logprobs": True, "top_logprobs": 2, "max_tokens": 20}
            batch = await ask(api.client, *[conversation(t) for t in texts], **options)
            assert batch.status == 200
            alone = [(await api.client.chat(text, **options)).json for text in texts]
            expected = [
                {**reply["choices"][0], "index": index} for index, reply in enumerate(alone)
            ]
            assert batch.json["choices"] == expected
            assert len({choice["message"]["content"] for choice in expected}) == 3
            for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
                assert batch.json["usage"][count] == sum(reply["usage"][count] for reply in alone)
            assert batch.json["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
            assert set(batch.json) == set(alone[0])
            assert batch.json["object"] == "chat.completion"

    asyncio.run(main())


def test_options_of_a_chat_hold_for_every_conversation() -> None:
    async def main() -> None:
        async with serving() as api:
            asked = [conversation("a", "b"), conversation("c", "d")]
            answer = await ask(
                api.client,
                *asked,
                echo=True,
                add_generation_prompt=False,
                return_token_ids=True,
                priority=3,
                request_id="mine",
                unknown_thing=1,
            )
            assert answer.json["id"] == "chatcmpl-mine"
            assert answer.headers["x-octavo-ignored-fields"] == "unknown_thing"
            for choice, last in zip(answer.json["choices"], "bd", strict=True):
                assert choice["message"]["content"].startswith(last)
                assert choice["token_ids"]
            assert [request.priority for request in api.core.added] == [3, 3]
            assert "prompt_token_ids" not in answer.json

    asyncio.run(main())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stream", True),
        ("n", 2),
        ("use_beam_search", True),
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("prompt_logprobs", 1),
    ],
)
def test_what_a_batch_cannot_do_is_refused(field: str, value: Any) -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await ask(api.client, conversation("x"), **{field: value})
            assert (answer.status, answer.error["param"]) == (400, field)
            assert "/v1/chat/completions" in answer.error["message"]
            assert api.core.added == []
            await api.is_alive()

    asyncio.run(main())


def test_what_asks_for_nothing_is_taken() -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await ask(api.client, conversation("x"), stream=False, n=1, tools=[])
            assert answer.status == 200

    asyncio.run(main())


@pytest.mark.parametrize(
    "messages", [[], [[]], conversation("x"), [conversation("x"), []], [["x"]], None, "x"]
)
def test_messages_that_are_no_conversations_are_refused(messages: Any) -> None:
    async def main() -> None:
        async with serving() as api:
            answer = await api.client.post(BATCH, {"messages": messages})
            assert answer.status == 400
            assert answer.error["param"].startswith("messages")
            assert api.core.added == []

    asyncio.run(main())


def test_the_number_of_conversations_is_limited() -> None:
    async def main() -> None:
        async with serving(ServerConfig(max_completion_prompts=3)) as api:
            assert (await ask(api.client, *[conversation("x")] * 3)).status == 200
            answer = await ask(api.client, *[conversation("x")] * 4)
            assert (answer.status, answer.error["param"]) == (400, "messages")
            assert "1 to 3 conversations, got 4" in answer.error["message"]

    asyncio.run(main())


def test_a_client_that_leaves_aborts_all_conversations() -> None:
    async def main() -> None:
        async with serving() as api:
            api.core.hold()
            body = {"messages": [conversation("x"), conversation("y")]}
            exchange = api.client.send("POST", BATCH, body)
            await api.core.has_running(2)
            exchange.leave()
            await exchange.ended()
            assert api.core.num_running == 0
            assert len(api.core.aborted) == 2

    asyncio.run(main())
