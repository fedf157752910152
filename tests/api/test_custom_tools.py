"""Custom tools and allowed tools of chats on a played core, whole and streamed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from octavo.api.parsing.factory import ModelTexts, reply_parsers
from octavo.config.server import ServerConfig
from tests.api.test_tools import (
    AUTO,
    CITY,
    TOOLS,
    WEATHER,
    custom,
    grammar,
    grammar_of,
    parsers,
    run,
    tool,
)
from tests.fakes.api import Api, serving
from tests.fakes.fake_async_llm import saying
from tests.fakes.grammar_match import matches

SQL = custom("run_sql")
NAMED = {"type": "custom", "custom": {"name": "run_sql"}}


def call(name: str, arguments: Any) -> str:
    said = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{said}\n</tool_call>"


async def calls(api: Api, **fields: Any) -> list[Any]:
    """Type, name and input of each call, which are the same whole and streamed."""
    whole = await api.client.chat(**fields)
    assert whole.status == 200, whole.body
    (choice,) = whole.json["choices"]
    made = [(one["type"], one[one["type"]]) for one in choice["message"].get("tool_calls", [])]
    streamed = await api.client.chat(stream=True, **fields)
    told: list[Any] = []
    for delta in (c["delta"] for chunk in streamed.chunks for c in chunk["choices"]):
        for part in delta.get("tool_calls", []):
            (kind,) = {"function", "custom"} & set(part)
            key = "input" if kind == "custom" else "arguments"
            if "id" in part:
                assert part["type"] == kind
                assert part[kind][key] == ""
                told.append((kind, dict(part[kind])))
            else:
                assert set(part) == {"index", kind}
                told[part["index"]][1][key] += part[kind][key]
    assert told == made
    return made


@pytest.mark.parametrize("said", ["", 'SELECT "a"\n', "\\ \u00e9 \U0001f600", "{}"])
@pytest.mark.parametrize("choice", ["auto", "required", NAMED])
def test_the_input_of_a_call_is_a_text(said: str, choice: Any) -> None:
    async def test(api: Api) -> None:
        made = await calls(api, tools=[*TOOLS, SQL], tool_choice=choice)
        assert made == [("custom", {"name": "run_sql", "input": said})]
        shown = api.template.calls[-1]["tools"][-1]
        assert shown["type"] == "function"
        assert shown["function"]["name"] == "run_sql"
        assert shown["function"]["parameters"]["required"] == ["input"]

    run(test, call("run_sql", {"input": said}))


def test_functions_and_custom_tools_are_called_side_by_side() -> None:
    async def test(api: Api) -> None:
        assert await calls(api, tools=[*TOOLS, SQL]) == [
            ("custom", {"name": "run_sql", "input": "a"}),
            ("function", {"name": "get_weather", "arguments": '{"city": "Paris"}'}),
            ("custom", {"name": "run_sql", "input": "b"}),
        ]

    run(
        test, "\n".join([call("run_sql", {"input": "a"}), WEATHER, call("run_sql", {"input": "b"})])
    )


def test_a_past_call_is_shown_as_one_of_a_function() -> None:
    async def test(api: Api) -> None:
        past = {
            "id": "call_1",
            "type": "custom",
            "custom": {"name": "run_sql", "input": "SELECT 1"},
        }
        messages = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [past]},
            {"role": "tool", "tool_call_id": "call_1", "content": "1"},
        ]
        assert (await api.client.chat(messages=messages, tools=[SQL])).status == 200
        (shown,) = api.template.calls[-1]["messages"][1]["tool_calls"]
        function = {"name": "run_sql", "arguments": {"input": "SELECT 1"}}
        assert shown == {"id": "call_1", "type": "function", "function": function}
        for wrong in ({"name": "x"}, {"name": "x", "input": 5}, {"input": "x"}, None):
            messages[1]["tool_calls"] = [{**past, "custom": wrong}]
            refused = await api.client.chat(messages=messages, tools=[SQL])
            assert refused.status == 400
            assert refused.error["param"].startswith("messages[1].tool_calls[0].")

    run(test, "ok")


LARK = 'start: "SELECT" SP WORD\nSP: " "\nWORD: /[a-z]+/ | "\\"" /[^"]*/ "\\""'


@pytest.mark.parametrize(
    ("syntax", "definition", "right", "wrong"),
    [
        ("lark", LARK, 'SELECT "a"', "SELECT 1"),
        ("regex", r'^[0-9]{2}/"x"$', '12/"x"', "12"),
    ],
)
def test_a_grammar_holds_for_the_input(
    syntax: str, definition: str, right: str, wrong: str
) -> None:
    async def test(api: Api) -> None:
        tools = [*TOOLS, grammar("f", syntax, definition)]
        named = {"type": "custom", "custom": {"name": "f"}}
        for choice in ("auto", "required", named):
            answer = await api.client.chat(tools=tools, tool_choice=choice)
            assert answer.status == 200, answer.body
            held = grammar_of(api.core.added[-1])
            assert matches(held, call("f", {"input": right}))
            assert not matches(held, call("f", {"input": wrong}))
            assert matches(held, WEATHER) is (choice != named)
        said = api.template.calls[-1]["tools"][-1]["function"]["description"]
        assert definition in said

    run(test)


def test_a_grammar_that_cannot_be_held_to_is_refused() -> None:
    async def main() -> None:
        made = reply_parsers(tool_name="llama3_json", reasoning_name=None, model=ModelTexts())
        async with serving(AUTO, script=saying("x"), parsers=made) as api:
            tools = [grammar("f", "regex", "a")]
            refused = await api.client.chat(tools=tools)
            assert refused.status == 400
            assert refused.error["param"] == "tools[0].custom.format.grammar.definition"
            assert "tool_choice" in refused.error["message"]
            assert (await api.client.chat(tools=tools, tool_choice="required")).status == 200
            assert (await api.client.chat(tools=tools, tool_choice="none")).status == 200

    asyncio.run(main())


@pytest.mark.parametrize(
    ("syntax", "definition", "words"),
    [
        ("lark", "start: A\n%ignore / /\nA: /a/", "%ignore"),
        ("lark", "start: missing", "missing"),
        ("regex", "(", "cannot be served"),
        ("regex", "[z-a]", "cannot be read"),
    ],
)
def test_a_wrong_grammar_is_named(syntax: str, definition: str, words: str) -> None:
    async def test(api: Api) -> None:
        refused = await api.client.chat(tools=[grammar("f", syntax, definition)])
        assert refused.status == 400, refused.body
        assert refused.error["param"] == "tools[0].custom.format.grammar.definition"
        assert words in refused.error["message"]
        await api.is_alive()

    run(test)


# ---- allowed tools ------------------------------------------------------------------------------


def allowed(mode: str, *references: Any) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(references)}}


ADD_ONLY = {"type": "function", "function": {"name": "add"}}


def test_allowed_tools_are_the_only_ones_and_the_prompt_stays() -> None:
    async def test(api: Api) -> None:
        await api.client.chat(tools=TOOLS)
        prompt = api.core.added[-1].prompt_token_ids
        add = call("add", {"a": 1, "b": 2})
        for mode, text_is_right in (("auto", True), ("required", False)):
            answer = await api.client.chat(tools=TOOLS, tool_choice=allowed(mode, ADD_ONLY))
            assert answer.status == 200, answer.body
            held = grammar_of(api.core.added[-1])
            assert matches(held, add)
            assert not matches(held, WEATHER)
            assert matches(held, "no") is text_is_right
            assert api.core.added[-1].prompt_token_ids == prompt

    run(test, call("add", {"a": 1, "b": 2}))


def test_without_a_mark_only_the_allowed_tools_are_shown() -> None:
    async def main() -> None:
        said = '{"name": "get_weather", "parameters": {"city": "Paris"}}'
        async with serving(AUTO, script=saying(said), parsers=parsers("llama3_json")) as api:
            choice = allowed("auto", ADD_ONLY)
            answer = await api.client.chat(tools=TOOLS, tool_choice=choice)
            assert answer.status == 200, answer.body
            assert api.template.calls[-1]["tools"] == TOOLS[1:]
            message = answer.json["choices"][0]["message"]
            assert message["content"] == said, "it is no call of a tool that may be called"
            await api.client.chat(tools=TOOLS, tool_choice=allowed("required", ADD_ONLY))
            assert api.template.calls[-1]["tools"] == TOOLS

    asyncio.run(main())


def test_a_required_call_of_allowed_tools_ends_as_one() -> None:
    async def test(api: Api) -> None:
        references = [ADD_ONLY, NAMED, {"type": "function", "function": {"name": "get_weather"}}]
        answer = await api.client.chat(
            tools=[*TOOLS, SQL], tool_choice=allowed("required", *references)
        )
        (choice,) = answer.json["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["tool_calls"][0]["function"]["name"] == "get_weather"

    run(test)


def test_allowed_tools_go_with_a_format() -> None:
    async def test(api: Api) -> None:
        schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": CITY}}
        await api.client.chat(
            tools=TOOLS, tool_choice=allowed("auto", ADD_ONLY), response_format=schema
        )
        held = grammar_of(api.core.added[-1])
        assert matches(held, '{"city": "x"}')
        assert matches(held, call("add", {"a": 1, "b": 2}))
        assert not matches(held, WEATHER)

    run(test)


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ({"type": "allowed_tools"}, "tool_choice.allowed_tools"),
        (allowed("auto"), "tool_choice.allowed_tools.tools"),
        (allowed("auto", {"type": "function"}), "tool_choice.allowed_tools.tools[0].function"),
        (
            allowed("auto", ADD_ONLY, {"type": "function", "function": {"name": "x"}}),
            "tool_choice.allowed_tools.tools[1]",
        ),
        (
            allowed("auto", {"type": "custom", "custom": {"name": "add"}}),
            "tool_choice.allowed_tools.tools[0]",
        ),
        (allowed("maybe", ADD_ONLY), "tool_choice"),
        ({"type": "custom"}, "tool_choice.custom"),
        ({"type": "custom", "custom": {"name": "add"}}, "tool_choice"),
        ({"type": "function"}, "tool_choice.function"),
        ({"type": "other"}, "tool_choice"),
    ],
)
def test_wrong_choices_are_named(choice: Any, param: str) -> None:
    async def test(api: Api) -> None:
        refused = await api.client.chat(tools=TOOLS, tool_choice=choice)
        assert refused.status == 400, refused.body
        assert refused.error["param"].startswith(param)
        without = await api.client.chat(tool_choice=allowed("auto", ADD_ONLY))
        assert without.status == 400

    run(test)


def test_allowed_tools_need_what_their_mode_needs() -> None:
    async def test(api: Api) -> None:
        refused = await api.client.chat(tools=TOOLS, tool_choice=allowed("auto", ADD_ONLY))
        assert "--enable-auto-tool-choice" in refused.error["message"]
        answer = await api.client.chat(tools=TOOLS, tool_choice=allowed("required", ADD_ONLY))
        assert answer.status == 200

    run(test, server=ServerConfig())


def test_render_shows_custom_tools_as_functions() -> None:
    async def test(api: Api) -> None:
        messages = [{"role": "user", "content": "hi"}]
        body = {"messages": messages, "tools": [SQL, tool("f")]}
        assert (await api.client.post("/tokenize", body)).status == 200
        kinds = [one["type"] for one in api.template.calls[-1]["tools"]]
        assert kinds == ["function", "function"]

    run(test)
