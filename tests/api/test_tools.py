"""Tools of chats on a played core: what calls look like, whole and streamed, and what is refused.

The core says what the test wants, whatever the grammar it is sent; the library is asked of that.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from octavo.api.parsing.factory import ModelTexts, ReplyParsers, reply_parsers
from octavo.config.server import ServerConfig
from octavo.messages.engine import EngineCoreRequest
from tests.fakes.api import Api, serving
from tests.fakes.fake_async_llm import saying
from tests.fakes.grammar_match import matches

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SUM = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}


def tool(name: str, parameters: Any = None, **more: Any) -> dict[str, Any]:
    function = {"name": name, "description": "d", "parameters": parameters, **more}
    return {"type": "function", "function": function}


def custom(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "custom", "custom": {"name": name, "description": "d", **more}}


def grammar(name: str, syntax: str, definition: str) -> dict[str, Any]:
    content = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    return custom(name, format=content)


TOOLS = [tool("get_weather", CITY), tool("add", SUM)]
NAMED = {"type": "function", "function": {"name": "add"}}
WEATHER = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
ADD = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
AUTO = ServerConfig(enable_auto_tool_choice=True)


def parsers(tool_name: str | None = "hermes", reasoning_name: str | None = None) -> ReplyParsers:
    return reply_parsers(tool_name=tool_name, reasoning_name=reasoning_name, model=ModelTexts())


def run(
    test: Callable[[Api], Awaitable[None]],
    says: str = WEATHER,
    *,
    server: ServerConfig = AUTO,
    parser: str = "hermes",
    **options: Any,
) -> None:
    async def main() -> None:
        made = parsers(parser)
        async with serving(server, script=saying(says), parsers=made, **options) as api:
            await test(api)

    asyncio.run(main())


def summed(chunks: list[Any], index: int = 0) -> dict[str, Any]:
    """A streamed choice as a whole one: its message and reason."""
    message: dict[str, Any] = {"content": ""}
    calls: list[dict[str, Any]] = []
    reasons = []
    for choice in (c for chunk in chunks for c in chunk["choices"] if c["index"] == index):
        delta = choice["delta"]
        message["content"] += delta.get("content", "")
        for part in delta.get("tool_calls", ()):
            function = part["function"]
            if "id" in part:
                assert part["index"] == len(calls)
                assert (part["type"], function["arguments"]) == ("function", "")
                calls.append({"id": part["id"], "name": function["name"], "arguments": ""})
            else:
                assert set(function) == {"arguments"}
                calls[part["index"]]["arguments"] += function["arguments"]
        if choice["finish_reason"] is not None:
            reasons.append(choice["finish_reason"])
    assert len(reasons) == 1
    return {"content": message["content"] or None, "calls": calls, "reason": reasons[0]}


def whole_of(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice["message"]
    calls = [{"id": call["id"], **call["function"]} for call in message.get("tool_calls", ())]
    return {
        "content": message["content"] or None,
        "calls": calls,
        "reason": choice["finish_reason"],
    }


def without_ids(reply: dict[str, Any]) -> dict[str, Any]:
    return {**reply, "calls": [(call["name"], call["arguments"]) for call in reply["calls"]]}


async def both(api: Api, **fields: Any) -> dict[str, Any]:
    """The reply, which is the same whole and streamed but for the ids of its calls."""
    whole = await api.client.chat(**fields)
    assert whole.status == 200, whole.body
    streamed = await api.client.chat(stream=True, **fields)
    reply = whole_of(whole.json["choices"][0])
    assert without_ids(summed(streamed.chunks)) == without_ids(reply)
    return reply


def grammar_of(request: EngineCoreRequest) -> Any:
    assert request.grammar is not None
    return request.grammar


def test_a_call_that_the_model_chooses() -> None:
    async def test(api: Api) -> None:
        reply = await both(api, tools=TOOLS)
        (call,) = reply["calls"]
        assert re.fullmatch(r"chatcmpl-tool-[0-9a-f]{16}", call["id"])
        assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"city": "Paris"})
        assert (reply["content"], reply["reason"]) == (None, "tool_calls")
        assert api.template.calls[-1]["tools"] == TOOLS
        assert all(request.grammar is None for request in api.core.added)
        message = (await api.client.chat(tools=TOOLS)).json["choices"][0]["message"]
        assert message["content"] is None
        assert message["tool_calls"][0]["type"] == "function"

    run(test)


def test_c65_without_a_choice_it_is_the_models() -> None:
    async def test(api: Api) -> None:
        for fields in ({}, {"tool_choice": None}, {"tool_choice": "auto"}):
            assert (await both(api, tools=TOOLS, **fields))["reason"] == "tool_calls"

    run(test)


def test_a_reply_without_calls_has_no_key_for_them() -> None:
    async def test(api: Api) -> None:
        message = (await api.client.chat(tools=TOOLS)).json["choices"][0]["message"]
        assert message == {"role": "assistant", "content": "I am fine.", "refusal": None}
        assert (await both(api, tools=TOOLS))["reason"] == "stop"

    run(test, "I am fine.")


def test_text_before_a_call_is_content() -> None:
    async def test(api: Api) -> None:
        reply = await both(api, tools=TOOLS)
        assert reply["content"].strip() == "I look."
        assert len(reply["calls"]) == 1

    run(test, "I look.\n" + WEATHER)


def test_c70_two_calls_have_two_indices_and_ids() -> None:
    async def test(api: Api) -> None:
        reply = await both(api, tools=TOOLS)
        assert [call["name"] for call in reply["calls"]] == ["get_weather", "add"]
        assert len({call["id"] for call in reply["calls"]}) == 2
        one = await both(api, tools=TOOLS, parallel_tool_calls=False)
        assert [call["name"] for call in one["calls"]] == ["get_weather"]
        assert one["reason"] == "tool_calls"

    run(test, f"{WEATHER}\n{ADD}")


def test_c73_a_long_argument_comes_in_many_deltas() -> None:
    async def test(api: Api) -> None:
        chunks = (await api.client.chat(stream=True, tools=TOOLS)).chunks
        parts = [
            part["function"]["arguments"]
            for chunk in chunks
            for part in chunk["choices"][0]["delta"].get("tool_calls", ())
        ]
        assert sum(map(bool, parts)) > 200
        assert json.loads("".join(parts)) == {"city": "x" * 200}

    run(test, WEATHER.replace("Paris", "x" * 200))


@pytest.mark.parametrize(
    ("choice", "says", "reason"),
    [("required", WEATHER, "tool_calls"), ("required", ADD, "tool_calls"), (NAMED, ADD, "stop")],
)
def test_c67_calls_that_are_demanded(choice: Any, says: str, reason: str) -> None:
    async def test(api: Api) -> None:
        reply = await both(api, tools=TOOLS, tool_choice=choice)
        assert (len(reply["calls"]), reply["content"]) == (1, None)
        assert reply["reason"] == reason
        for request in api.core.added:
            assert matches(grammar_of(request), says)
            assert not matches(grammar_of(request), "I would rather talk.")
            assert not matches(grammar_of(request), ADD.replace("1", '"one"'))
            assert matches(grammar_of(request), WEATHER) == (choice == "required")
            assert matches(grammar_of(request), f"{ADD}\n{ADD}") == (choice == "required")

    run(test, says, server=ServerConfig())


@pytest.mark.parametrize("choice", ["required", NAMED, "auto"])
def test_c68_a_call_that_is_cut_off_ends_with_length(choice: Any) -> None:
    async def test(api: Api) -> None:
        for max_tokens in range(1, len(ADD) + 1):
            reply = await both(api, tools=TOOLS, tool_choice=choice, max_tokens=max_tokens)
            assert reply["reason"] == "length"

    run(test, ADD)


def test_one_call_at_most_is_a_part_of_the_grammar() -> None:
    async def test(api: Api) -> None:
        fields = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
        await both(api, **fields)
        assert matches(grammar_of(api.core.added[-1]), WEATHER)
        assert not matches(grammar_of(api.core.added[-1]), f"{WEATHER}\n{ADD}")

    run(test)


def test_a_format_that_cannot_be_demanded_is_a_list_then() -> None:
    listed = '[{"name": "add", "parameters": {"a": 1, "b": 2}}]'

    async def test(api: Api) -> None:
        for choice in ("required", NAMED):
            reply = await both(api, tools=TOOLS, tool_choice=choice)
            assert without_ids(reply)["calls"] == [("add", '{"a": 1, "b": 2}')]
            assert matches(grammar_of(api.core.added[-1]), listed)

    run(test, listed, parser="pythonic")


def test_the_operator_may_keep_the_arguments_of_loose_tools() -> None:
    server = ServerConfig(enable_auto_tool_choice=True, tool_strict_level="parameter")

    async def test(api: Api) -> None:
        loose = [tool("add", SUM, strict=False)]
        await both(api, tools=loose, tool_choice="required")
        assert matches(grammar_of(api.core.added[-1]), ADD)
        assert not matches(grammar_of(api.core.added[-1]), ADD.replace("1", '"one"'))

    run(test, ADD, server=server)


def test_loose_tools_may_be_called_with_anything() -> None:
    async def test(api: Api) -> None:
        schema = {"type": "object", "properties": {"a": {"not": {}}}}
        loose = [tool("add", schema, strict=False)]
        assert (await both(api, tools=loose, tool_choice="required"))["reason"] == "tool_calls"
        assert matches(grammar_of(api.core.added[-1]), ADD.replace("1", '"one"'))

    run(test, ADD)


@pytest.mark.parametrize(
    ("level", "strict", "form_is_kept", "arguments_are_kept"),
    [
        ("auto", None, False, False),
        ("auto", False, False, False),
        ("auto", True, True, True),
        ("function", None, True, False),
        ("parameter", False, True, True),
    ],
)
def test_calls_of_strict_tools_are_kept_in_form_also_where_the_model_chooses(
    level: str, strict: bool | None, form_is_kept: bool, arguments_are_kept: bool
) -> None:
    server = ServerConfig(enable_auto_tool_choice=True, tool_strict_level=level)

    async def test(api: Api) -> None:
        await both(api, tools=[tool("add", SUM, strict=strict), tool("free", {})])
        grammar = api.core.added[-1].grammar
        assert (grammar is not None) == form_is_kept
        if grammar is not None:
            assert matches(grammar, "I think 1 < 2.")
            assert matches(grammar, f"I add.\n{ADD}")
            assert not matches(grammar, "<tool_call>\n{}")
            assert not matches(grammar, ADD.replace("add", "subtract"))
            assert matches(grammar, ADD.replace("1", '"one"')) != arguments_are_kept

    run(test, ADD, server=server)


def test_c34_calls_or_an_answer_in_the_format_that_is_asked_for() -> None:
    answer = {"type": "json_schema", "json_schema": {"name": "n", "schema": SUM}}

    async def test(api: Api) -> None:
        reply = await both(api, tools=TOOLS, response_format=answer)
        assert reply == {"content": '{"a": 1, "b": 2}', "calls": [], "reason": "stop"}
        for request in api.core.added:
            assert matches(grammar_of(request), '{"a": 1, "b": 2}')
            assert matches(grammar_of(request), WEATHER)
            assert not matches(grammar_of(request), '{"a": 1}')
            assert not matches(grammar_of(request), "text")
        await both(api, tools=TOOLS, response_format={"type": "json_object"})
        assert matches(grammar_of(api.core.added[-1]), "{}")
        await both(api, tools=TOOLS, response_format=answer, tool_choice="required")
        assert not matches(grammar_of(api.core.added[-1]), '{"a": 1, "b": 2}')
        await both(api, tools=TOOLS, response_format=answer, tool_choice="none")
        assert not matches(grammar_of(api.core.added[-1]), WEATHER)
        mistake = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"not": {}}}}
        refused = await api.client.chat(tools=TOOLS, response_format=mistake)
        assert refused.error["param"] == "response_format.json_schema.schema"

    run(test, '{"a": 1, "b": 2}')


def test_other_constraints_do_not_go_with_demanded_calls() -> None:
    async def test(api: Api) -> None:
        regex = {"regex": "[ab]+"}
        refused = await api.client.chat(
            tools=TOOLS, tool_choice="required", structured_outputs=regex
        )
        assert (refused.status, refused.error["param"]) == (400, "structured_outputs")
        beams = await api.client.chat(tools=TOOLS, tool_choice="required", use_beam_search=True)
        assert (beams.status, beams.error["param"]) == (400, "tool_choice")
        await api.is_alive()

    run(test)


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ([{}], "tools[0].function"),
        ([{"type": "web_search"}], "tools[0].type"),
        ([{"type": "custom", "function": {"name": "x"}}], "tools[0].custom"),
        ([custom("a b")], "tools[0].custom.name"),
        ([tool("f"), custom("f")], "tools[1].custom.name"),
        ([custom("f", format="text")], "tools[0].custom.format.type"),
        ([custom("f", format={"type": "grammar"})], "tools[0].custom.format.grammar"),
        ([grammar("f", "ebnf", "x")], "tools[0].custom.format.grammar.syntax"),
        ([grammar("f", "lark", "")], "tools[0].custom.format.grammar.definition"),
        ([{"type": "function", "function": {}}], "tools[0].function.name"),
        ([tool("f"), tool("a b")], "tools[1].function.name"),
        ([tool("a\nb")], "tools[0].function.name"),
        ([tool('a"b')], "tools[0].function.name"),
        ([tool("")], "tools[0].function.name"),
        ([tool("x" * 257)], "tools[0].function.name"),
        ([tool("f"), tool("g"), tool("f")], "tools[2].function.name"),
        ([tool("f", [])], "tools[0].function.parameters"),
        ([tool("f", "x")], "tools[0].function.parameters"),
        ([tool("f", strict="yes")], "tools[0].function.strict"),
        ([tool(f"f{i}") for i in range(1025)], "tools"),
    ],
)
def test_wrong_tools_are_named(tools: list[Any], param: str) -> None:
    async def test(api: Api) -> None:
        for choice in ("auto", "none", "required"):
            refused = await api.client.chat(tools=tools, tool_choice=choice)
            assert (refused.status, refused.error["param"]) == (400, param)
        await api.is_alive()

    run(test)


@pytest.mark.parametrize(
    ("parameters", "pointer"),
    [
        ({"type": "objekt"}, "/type"),
        ({"type": "object", "properties": {"a": {"not": {}}}}, "/properties/a/not"),
        ({"type": "object", "properties": {"a": {"pattern": "(?=x)"}}}, "/properties/a"),
        ({"$ref": "#/$defs/nowhere"}, "/$ref"),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_mistake_in_parameters_has_a_place(
    parameters: Any, pointer: str, is_stream: bool
) -> None:
    async def test(api: Api) -> None:
        refused = await api.client.chat(
            tools=[TOOLS[0], tool("bad", parameters)], tool_choice="required", stream=is_stream
        )
        assert refused.status == 400
        assert refused.error["param"] == "tools[1].function.parameters"
        assert f"(at {pointer})" in refused.error["message"]
        await api.is_alive()

    run(test)


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"tool_choice": "required"}, "tool_choice", "`tools` must be set"),
        ({"tool_choice": NAMED, "tools": []}, "tool_choice", "`tools` must be set"),
        ({"tool_choice": NAMED, "tools": TOOLS[:1]}, "tool_choice", "does not match any"),
        ({"tool_choice": "sometimes", "tools": TOOLS}, "tool_choice", "sometimes"),
        ({"functions": [{"name": "f"}]}, "functions", "use tools"),
        ({"function_call": {"name": "f"}}, "function_call", "use tool_choice"),
    ],
)
def test_wrong_choices_are_named(fields: Any, param: str, words: str) -> None:
    async def test(api: Api) -> None:
        refused = await api.client.chat(**fields)
        assert refused.status == 400
        assert refused.error["param"] == param
        assert words in refused.error["message"]

    run(test)


def test_auto_needs_its_flag_and_a_parser() -> None:
    async def test(api: Api) -> None:
        refused = await api.client.chat(tools=TOOLS)
        assert refused.error["message"].startswith(
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
        )

    run(test, server=ServerConfig())

    async def without_parser() -> None:
        async with serving(AUTO) as api:
            await test(api)
            refused = await api.client.chat(tools=TOOLS, tool_choice="required")
            assert refused.error["message"].startswith(
                'tool_choice="required" requires --tool-call-parser to be set'
            )
            named = await api.client.chat(tools=TOOLS, tool_choice=NAMED)
            assert named.error["message"].startswith('tool_choice="add" requires')

    asyncio.run(without_parser())


def test_tools_that_must_not_be_called_are_text_and_may_be_left_out_of_the_prompt() -> None:
    async def test(api: Api) -> None:
        reply = await both(api, tools=TOOLS, tool_choice="none")
        assert reply == {"content": WEATHER, "calls": [], "reason": "stop"}
        assert api.template.calls[-1]["tools"] == TOOLS

    async def excluded(api: Api) -> None:
        await both(api, tools=TOOLS, tool_choice="none")
        assert api.template.calls[-1]["tools"] is None
        await both(api, tools=TOOLS, tool_choice="required")
        assert api.template.calls[-1]["tools"] == TOOLS

    run(test)
    run(excluded, server=ServerConfig(exclude_tools_when_tool_choice_none=True))


def test_tokens_and_logprobs_are_those_of_the_whole_output() -> None:
    async def test(api: Api) -> None:
        fields = {"tools": TOOLS, "logprobs": True, "return_token_ids": True}
        whole = (await api.client.chat(**fields)).json["choices"][0]
        streamed = [
            choice
            for chunk in (await api.client.chat(stream=True, **fields)).chunks
            for choice in chunk["choices"]
        ]
        ids = [i for choice in streamed for i in choice.get("token_ids", ())]
        assert ids == whole["token_ids"]
        assert bytes(ids[:-1]).decode() == WEATHER
        entries = [
            e for choice in streamed if choice["logprobs"] for e in choice["logprobs"]["content"]
        ]
        assert entries == whole["logprobs"]["content"]
        assert len(entries) == len(ids)

    run(test)


def test_each_of_n_choices_has_its_own_calls() -> None:
    async def test(api: Api) -> None:
        whole = (await api.client.chat(tools=TOOLS, n=2, temperature=1)).json["choices"]
        chunks = (await api.client.chat(tools=TOOLS, n=2, temperature=1, stream=True)).chunks
        replies = [whole_of(choice) for choice in whole] + [summed(chunks, i) for i in (0, 1)]
        assert [without_ids(r) for r in replies] == [without_ids(replies[0])] * 4
        assert len({call["id"] for reply in replies for call in reply["calls"]}) == 4

    run(test)


def test_calls_are_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[tuple[bool, bool]] = []

    async def test(api: Api) -> None:
        for is_stream in (False, True):
            await api.client.chat(tools=TOOLS, stream=is_stream)
        await api.client.chat(tools=TOOLS, tool_choice="none")
        lines = [r.getMessage() for r in caplog.records if "Generated response" in r.getMessage()]
        assert len(lines) == 3
        for line in lines[:2]:
            assert '[tool_calls: get_weather({"city": "Paris"})]' in line

    server = ServerConfig(
        enable_auto_tool_choice=True, enable_log_requests=True, enable_log_outputs=True
    )
    with caplog.at_level(logging.INFO):
        run(
            test,
            server=server,
            observe_tool_reading=lambda is_stream, called: seen.append((is_stream, called)),
        )
    assert seen == [(False, True), (True, True)]


def test_a_plain_chat_has_no_parser() -> None:
    async def test(api: Api) -> None:
        reply = (await api.client.chat()).json["choices"][0]["message"]
        assert reply["content"] == WEATHER
        assert "tool_calls" not in reply
        chunks = (await api.client.chat(stream=True)).chunks
        assert summed(chunks)["content"] == WEATHER

    run(test)
