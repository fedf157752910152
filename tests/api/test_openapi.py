"""`/openapi.json` describes every route as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from octavo.config.server import ServerConfig
from tests.fakes.api import VERSION, serving

EXPECTED = {
    ("get", "/health"),
    ("get", "/ready"),
    ("get", "/live"),
    ("get", "/ping"),
    ("post", "/ping"),
    ("get", "/version"),
    ("get", "/metrics"),
    ("get", "/load"),
    ("get", "/kv_event_sources"),
    ("get", "/v1/models"),
    ("get", "/v1/models/{model_id}"),
    ("post", "/v1/chat/completions"),
    ("post", "/v1/chat/completions/batch"),
    ("post", "/v1/chat/completions/render"),
    ("post", "/v1/completions/render"),
    ("post", "/v1/completions"),
    ("post", "/invocations"),
    ("post", "/tokenize"),
    ("post", "/detokenize"),
}


async def document(**config: Any) -> dict[str, Any]:
    async with serving(ServerConfig(**config)) as api:
        answer = await api.client.get("/openapi.json", headers={"x-api-key": "k"})
        assert answer.status == 200
        found: dict[str, Any] = answer.json
        return found


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_every_route_is_described_and_every_reference_resolves() -> None:
    found = asyncio.run(document())
    assert found["openapi"].startswith("3.1")
    assert found["info"] == {"title": "Octavo", "version": VERSION}
    described = {(method, path) for path, item in found["paths"].items() for method in item}
    assert described == EXPECTED
    schemas = found["components"]["schemas"]
    for reference in references(found):
        prefix, _, name = reference.rpartition("/")
        assert prefix == "#/components/schemas"
        assert name in schemas
    ids = [op["operationId"] for item in found["paths"].values() for op in item.values()]
    assert len(ids) == len(set(ids))


def test_chat_has_request_response_stream_and_errors() -> None:
    found = asyncio.run(document())
    chat = found["paths"]["/v1/chat/completions"]["post"]
    schemas = found["components"]["schemas"]
    body = chat["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    assert body.endswith("/ChatCompletionRequest")
    assert schemas["ChatCompletionRequest"]["required"] == ["messages"]
    assert {"temperature", "top_k", "max_completion_tokens", "stream_options"} <= set(
        schemas["ChatCompletionRequest"]["properties"]
    )
    answers = chat["responses"]
    assert set(answers) == {"200", "400", "401", "404", "500", "503"}
    content = answers["200"]["content"]
    assert content["application/json"]["schema"]["$ref"].endswith("/ChatCompletionResponse")
    event = content["text/event-stream"]["itemSchema"]["properties"]["data"]["anyOf"]
    assert event[0] == {"const": "[DONE]"}
    names = [kind["$ref"].rpartition("/")[2] for kind in event[1]["contentSchema"]["anyOf"]]
    assert names == ["ChatCompletionChunk", "ErrorResponse"]
    for status in ("400", "401", "404", "500", "503"):
        schema = answers[status]["content"]["application/json"]["schema"]
        assert schema["$ref"].endswith("/ErrorResponse")
    assert "Retry-After" in answers["503"]["headers"]
    assert set(schemas["ErrorBody"]["properties"]) == {"message", "type", "param", "code"}


def test_options_may_be_null_and_what_is_needed_may_not() -> None:
    schemas = asyncio.run(document())["components"]["schemas"]
    null = {"type": "null"}
    for name, needed in (("ChatCompletionRequest", "messages"), ("DetokenizeRequest", "tokens")):
        for field, schema in schemas[name]["properties"].items():
            assert (null in schema.get("anyOf", [])) == (field != needed), field
    choice = schemas["CompletionResponse"]["properties"]["choices"]
    assert null not in choice.get("anyOf", [])


def test_prompts_are_described_with_what_they_hold() -> None:
    schemas = asyncio.run(document())["components"]["schemas"]
    validator = jsonschema.Draft202012Validator(
        schemas["CompletionRequest"]["properties"]["prompt"]
    )
    for good in ("a", [1, 2], ["a", "b"], [[1], [2, 3]], ["a", [1]]):
        assert validator.is_valid(good), good
    for bad in ("", [], [[]], [None], [1, "a"], [{}], 5, [[-1]], ["a", [1.5]]):
        assert not validator.is_valid(bad), bad


def test_limits_are_described_as_they_are() -> None:
    async def main() -> None:
        async with serving() as api:
            schemas = (await api.client.get("/openapi.json")).json["components"]["schemas"]
            fields = schemas["CompletionRequest"]["properties"]
            seen = 0
            for name, schema in fields.items():
                number = schema["anyOf"][0] if "anyOf" in schema else schema
                for limit, step in (("minimum", -1), ("maximum", 1)):
                    if limit in number:
                        value = number[limit] + step
                        answer = await api.client.complete(**{"logprobs": 0, name: value})
                        assert (answer.status, answer.error["param"]) == (400, name), (name, value)
                        seen += 1
            assert seen >= 20

    asyncio.run(main())


def test_keys_are_described_only_if_there_are_some() -> None:
    keyed = asyncio.run(document(api_keys=["k"]))
    assert set(keyed["components"]["securitySchemes"]) == {"bearer", "x-api-key"}
    assert "security" in keyed["paths"]["/v1/models"]["get"]
    assert "security" not in keyed["paths"]["/health"]["get"]
    plain = asyncio.run(document())
    assert "securitySchemes" not in plain["components"]
    assert "security" not in plain["paths"]["/v1/models"]["get"]


def test_docs_pages_point_at_the_document_behind_a_proxy() -> None:
    async def main() -> None:
        async with serving() as api:
            for path in ("/docs", "/redoc"):
                page = await api.client.get(path, root_path="/llm")
                assert page.status == 200
                assert page.headers["content-type"].startswith("text/html")
                assert "/llm/openapi.json" in page.body.decode()

    asyncio.run(main())


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json"])
def test_docs_can_be_switched_off(path: str) -> None:
    async def main() -> None:
        async with serving(ServerConfig(disable_fastapi_docs=True)) as api:
            assert (await api.client.get(path)).status == 404

    asyncio.run(main())
