"""Requests as the engine would get them, and what clients ask of the tokenizer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from octavo.config.server import ServerConfig
from octavo.messages.engine import EngineCoreRequest
from tests.fakes.api import serving
from tests.fakes.byte_tokenizer import BOS, EOS, VOCAB_SIZE
from tests.fakes.fake_async_llm import reversed_prompt

CHAT = "/v1/chat/completions/render"
TEXT = "/v1/completions/render"
HI = [{"role": "user", "content": "hi"}]


def never(request: EngineCoreRequest) -> list[int]:
    raise AssertionError("it reached the engine")


def post(path: str, body: dict[str, Any]) -> Any:
    async def main() -> Any:
        async with serving(script=never) as api:
            return await api.client.post(path, body)

    return asyncio.run(main())


def test_a_chat_is_rendered_as_tokens_and_parameters() -> None:
    answer = post(CHAT, {"messages": HI, "temperature": 0.5, "seed": 7, "request_id": "r1"})
    assert answer.status == 200
    rendered = answer.json
    assert rendered["request_id"] == "chatcmpl-r1"
    assert bytes(rendered["token_ids"]) == b"user:hi\nassistant:"
    assert rendered["sampling_params"]["temperature"] == 0.5
    assert rendered["sampling_params"]["seed"] == 7
    assert rendered["stream"] is False


def test_what_is_rendered_is_what_the_engine_computes() -> None:
    async def main() -> None:
        body = {"messages": HI, "max_completion_tokens": 5, "stop": ["x"], "logit_bias": {"65": 1}}
        computed: list[EngineCoreRequest] = []

        def script(request: EngineCoreRequest) -> list[int]:
            computed.append(request)
            return reversed_prompt(request)

        async with serving(script=script) as api:
            rendered = (await api.client.post(CHAT, body)).json
            assert computed == []
            assert (await api.client.post("/v1/chat/completions", body)).status == 200
            (request,) = computed
            assert rendered["token_ids"] == list(request.prompt_token_ids)
            assert rendered["sampling_params"]["max_tokens"] == request.sampling_params.max_tokens
            assert rendered["sampling_params"]["stop"] == ["x"]
            assert rendered["sampling_params"]["logit_bias"] == {"65": 1.0}

    asyncio.run(main())


def test_without_max_tokens_the_rest_of_the_window_is_named() -> None:
    async def main() -> None:
        async with serving() as api:
            rendered = (await api.client.post(CHAT, {"messages": HI})).json
            room = api.llm.max_model_len - len(rendered["token_ids"])
            assert rendered["sampling_params"]["max_tokens"] == room

    asyncio.run(main())


def test_each_prompt_of_a_completion_is_rendered() -> None:
    answer = post(TEXT, {"prompt": ["a", "b"], "request_id": "r", "stream": True})
    assert [r["request_id"] for r in answer.json] == ["cmpl-r-0", "cmpl-r-1"]
    assert [r["token_ids"] for r in answer.json] == [[BOS, 97], [BOS, 98]]
    (one,) = post(TEXT, {"prompt": [1, 2], "request_id": "r"}).json
    assert (one["request_id"], one["token_ids"]) == ("cmpl-r", [1, 2])


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        (CHAT, {"messages": []}, 400, "messages"),
        (CHAT, {"messages": HI, "model": "other"}, 404, "model"),
        (CHAT, {"messages": HI, "use_beam_search": True, "n": 2}, 400, "use_beam_search"),
        (CHAT, {"messages": [{"role": "forbidden", "content": ""}]}, 400, "messages"),
        (CHAT, {"messages": HI, "chat_template": "x"}, 400, "chat_template"),
        (TEXT, {"prompt": "a" * 100_000}, 400, "input_text"),
        (TEXT, {"prompt": "a", "min_tokens": 9, "max_tokens": 3}, 400, "min_tokens"),
    ],
)
def test_what_could_not_be_served_is_not_rendered(
    path: str, body: dict[str, Any], status: int, param: str
) -> None:
    answer = post(path, body)
    assert answer.status == status
    assert answer.error["param"] == param


def test_tokenizer_info_is_there_only_when_asked_for() -> None:
    async def main() -> None:
        async with serving() as api:
            assert (await api.client.get("/tokenizer_info")).status == 404
        async with serving(ServerConfig(enable_tokenizer_info_endpoint=True)) as api:
            info = (await api.client.get("/tokenizer_info")).json
            assert info["bos_token"] == "<bos>"
            assert info["eos_token"] == "<eos>"
            assert info["vocab_size"] == VOCAB_SIZE
            assert info["added_tokens_decoder"][str(EOS)] == {"content": "<eos>", "special": True}
            assert info["model_max_length"] == api.llm.max_model_len
            assert "chat_template" not in info

    asyncio.run(main())
