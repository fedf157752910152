"""Structured output over HTTP on a played core: what is taken, what is refused, and what is sent.

The checker is the real one; the played core says what the test wants, whatever the grammar.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from octavo.messages.grammar import Grammar
from tests.fakes.api import Api, serving
from tests.fakes.asgi_client import Answer
from tests.fakes.fake_async_llm import saying
from tests.fakes.grammar_match import matches

Ask = Callable[..., Awaitable[Answer]]
PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


def run(test: Callable[[Api], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with serving(**options) as api:
            await test(api)

    asyncio.run(main())


def routes(api: Api) -> list[Ask]:
    return [api.client.chat, api.client.complete]


def json_schema(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, **more}}


@pytest.mark.parametrize(
    ("fields", "right", "wrong"),
    [
        ({"response_format": {"type": "json_object"}}, '{"a": 1}', "[1]"),
        ({"response_format": json_schema(PERSON)}, '{"age": 1}', "{}"),
        ({"response_format": json_schema(PERSON, strict=True)}, '{"age": 1}', "{}"),
        ({"structured_outputs": {"json": PERSON}}, '{"age": 1}', "{}"),
        ({"structured_outputs": {"json": json.dumps(PERSON)}}, '{"age": 1}', "{}"),
        ({"structured_outputs": {"json_object": True}}, "{}", "1"),
        ({"structured_outputs": {"regex": "a+"}}, "aa", "b"),
        ({"structured_outputs": {"choice": ["x", "y"]}}, "y", "z"),
        ({"structured_outputs": {"grammar": 'root ::= "x"'}}, "x", "y"),
    ],
)
def test_the_core_gets_a_grammar_and_the_vocabulary_before_it(
    fields: dict[str, Any], right: str, wrong: str
) -> None:
    async def test(api: Api) -> None:
        for ask in routes(api):
            answer = await ask(**fields)
            assert answer.status == 200, answer.body
            request = api.core.added[-1]
            assert request.sampling_params.structured_outputs is None
            assert isinstance(request.grammar, Grammar)
            assert matches(request.grammar, right)
            assert not matches(request.grammar, wrong)
        assert [call[0] for call in api.core.calls] == ["set_vocabulary"]

    run(test)


@pytest.mark.parametrize("value", [None, {"type": "text"}])
def test_plain_text_has_no_grammar(value: Any) -> None:
    async def test(api: Api) -> None:
        for ask in routes(api):
            answer = await ask(response_format=value, structured_outputs=None)
            assert answer.status == 200
        assert [request.grammar for request in api.core.added] == [None, None]
        assert api.core.calls == []

    run(test)


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        # C22: the wrapper is missing
        (
            {"response_format": {"type": "json_schema", "schema": {"type": "object"}}},
            "response_format",
            "json_schema is required",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {}}},
            "response_format",
            "schema",
        ),
        ({"response_format": {"type": "yaml"}}, "response_format", "yaml"),
        # C23
        (
            {"response_format": json_schema({"type": "objekt"})},
            "response_format.json_schema.schema",
            "(at /type)",
        ),
        ({"response_format": json_schema([{}])}, "response_format.json_schema.schema", ""),
        ({"structured_outputs": {"json": "[]"}}, "structured_outputs.json", "must be an object"),
        (
            {"structured_outputs": {"json": {"items": {"$ref": "#/$defs/x"}}}},
            "structured_outputs.json",
            "(at /items/$ref)",
        ),
        # a keyword that cannot be kept
        (
            {"response_format": json_schema({"properties": {"a": {"not": {"type": "null"}}}})},
            "response_format.json_schema.schema",
            "'not' is not supported in structured output (at /properties/a/not)",
        ),
        ({"structured_outputs": {}}, "structured_outputs", "You must use one kind"),
        (
            {"structured_outputs": {"regex": "a", "choice": ["a"]}},
            "structured_outputs",
            "You can only use one kind of structured outputs constraint but multiple",
        ),
        (
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
            "response_format",
            "You can only use one kind of structured outputs constraint but multiple",
        ),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "must not be empty"),
        ({"structured_outputs": {"choice": [""]}}, "structured_outputs.choice", "not empty"),
        ({"structured_outputs": {"choice": "a"}}, "structured_outputs", ""),
        ({"structured_outputs": {"regex": "(?=a)"}}, "structured_outputs", "look-around"),
        ({"structured_outputs": {"grammar": "x y"}}, "structured_outputs.grammar", "neither Lark"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_served_is_400_before_any_stream(
    fields: dict[str, Any], param: str, words: str, stream: bool
) -> None:
    async def test(api: Api) -> None:
        for ask in routes(api):
            answer = await ask(stream=stream, **fields)
            assert answer.status == 400, answer.body
            assert str(answer.error["param"]).startswith(param.split(".")[0])
            assert words in answer.error["message"], answer.error
        assert api.core.added == []
        await api.is_alive()

    run(test)


def test_c22_names_the_field_that_is_missing() -> None:
    async def test(api: Api) -> None:
        answer = await api.client.chat(
            response_format={"type": "json_schema", "schema": {"type": "object"}}
        )
        assert answer.status == 400
        assert "response_format.json_schema is required" in answer.error["message"]

    run(test)


def test_c23_mistakes_of_a_schema_have_a_pointer() -> None:
    async def test(api: Api) -> None:
        for schema, pointer in (
            ({"type": "objekt"}, "(at /type)"),
            ({"properties": {"a": {"$ref": "#/nowhere"}}}, "(at /properties/a/$ref)"),
        ):
            answer = await api.client.chat(response_format=json_schema(schema))
            assert answer.status == 400
            assert pointer in answer.error["message"]
        assert (await api.client.chat(response_format=json_schema([]))).status == 400
        await api.is_alive()

    run(test)


@pytest.mark.parametrize(
    ("field", "new"),
    [
        ("guided_json", '{"json": ...}'),
        ("guided_regex", '{"regex": ...}'),
        ("guided_choice", '{"choice": ...}'),
        ("guided_grammar", '{"grammar": ...}'),
        ("grammar", '{"grammar": ...}'),
        ("json_schema", '{"json": ...}'),
    ],
)
def test_older_names_are_refused_with_the_new_one(field: str, new: str) -> None:
    async def test(api: Api) -> None:
        answer = await api.client.chat(**{field: "x"})
        assert answer.status == 400
        assert f"use structured_outputs={new}" in answer.error["message"]

    run(test)


def test_a_beam_search_has_no_grammar() -> None:
    async def test(api: Api) -> None:
        for fields in (
            {"response_format": {"type": "json_object"}},
            {"structured_outputs": {"regex": "a"}},
        ):
            answer = await api.client.complete(use_beam_search=True, n=2, **fields)
            assert answer.status == 400
            assert "not supported with beam search" in answer.error["message"]

    run(test)


def test_each_of_n_outputs_has_the_grammar() -> None:
    async def test(api: Api) -> None:
        answer = await api.client.chat(n=3, temperature=1, response_format={"type": "json_object"})
        assert answer.status == 200
        assert len({request.grammar for request in api.core.added}) == 1
        assert len(api.core.added) == 3

    run(test)


def test_c34_schema_tools_and_stream_together() -> None:
    """Tools that must not be called are part of the prompt; the reply is the schema's."""

    async def test(api: Api) -> None:
        fields = {
            "response_format": json_schema(PERSON),
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
            "tool_choice": "none",
        }
        whole = await api.client.chat(**fields)
        streamed = await api.client.chat(stream=True, **fields)
        assert whole.status == streamed.status == 200
        text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in streamed.chunks)
        assert text == whole.json["choices"][0]["message"]["content"] == '{"age": 7}'
        assert all(request.grammar is not None for request in api.core.added)

    run(test, script=saying('{"age": 7}'))


def test_a_compile_that_fails_in_the_core_is_the_clients_mistake() -> None:
    async def test(api: Api) -> None:
        api.core.errors["chatcmpl"] = "The grammar of the request cannot be used: too large."
        api.core.are_request_errors = True
        answer = await api.client.chat(stream=True, response_format={"type": "json_object"})
        assert answer.status == 400
        assert "too large" in answer.error["message"]

    run(test)


def test_a_request_cannot_name_the_field_of_its_errors() -> None:
    async def main() -> None:
        async with serving() as api:
            asked = {"regex": "a", "choice": ["b"], "origin": "x" * 99, "schema_origins": ["y"]}
            answer = await api.client.chat(structured_outputs=asked)
            assert (answer.status, answer.error["param"]) == (400, "structured_outputs")
            assert "xxx" not in answer.error["message"]

    asyncio.run(main())
