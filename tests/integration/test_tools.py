"""Tools and reasoning on the real model: calls that are demanded, cases of tools, and a schema that
waits for the end of the reasoning."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from tests.integration.replies import CHAT, chunks, refused, user
from tests.integration.server import Server, serving
from tests.integration.test_streamed_equals_whole import joined, said_whole

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}
OTHER = {"type": "function", "function": {"name": "now", "parameters": None}}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
ASK = user("What will the weather be in Paris on the next three days?")

#: the first sentence of a reply is reasoning: any model does that
PLUGIN = """
from octavo.api.parsing.definition import Opening, ReasoningFormat
from octavo.api.parsing.names import register_reasoning_parser

register_reasoning_parser(
    "first_sentence",
    ReasoningFormat(begin=("<think>",), end=(".",), opening=Opening.REASONING),
)
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    with serving(tmp_path_factory.mktemp("tools") / "log", *flags) as server:
        yield server


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("thinking")
    (folder / "plugin.py").write_text(PLUGIN)
    plugin = ("--reasoning-parser-plugin", str(folder / "plugin.py"))
    flags = ("--reasoning-parser", "first_sentence", "--tool-call-parser", "hermes", *plugin)
    with serving(folder / "log", *flags) as server:
        yield server


def both(server: Server, **fields: Any) -> dict[str, Any]:
    """The reply, which is the same whole and streamed."""
    body = {"messages": ASK, "temperature": 0, "return_token_ids": True, **fields}
    status, whole = server.post(CHAT, body)
    assert status == 200, whole
    said = said_whole(whole)
    streamed = joined(chunks(server, CHAT, {**body, "stream_options": {"include_usage": True}}))
    if not streamed["message"]["content"]:
        del streamed["message"]["content"]
    assert streamed == said
    return said


@pytest.mark.parametrize(("choice", "reason"), [("required", "tool_calls"), (NAMED, "stop")])
def test_c67_arguments_satisfy_the_schema(live: Server, choice: Any, reason: str) -> None:
    for seed in range(3):
        said = both(
            live,
            tools=[TOOL],
            tool_choice=choice,
            parallel_tool_calls=False,
            max_tokens=120,
            temperature=1,
            seed=seed,
        )
        assert said["finish_reason"] == reason
        (call,) = said["message"]["tool_calls"]
        assert call["name"] == "get_weather"
        jsonschema.validate(json.loads(call["arguments"]), CITY)
        assert "content" not in said["message"]


def test_c68_what_is_cut_off_ends_with_length(live: Server) -> None:
    fields = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    whole = both(live, max_tokens=120, **fields)
    num_tokens = whole["usage"]
    assert whole["finish_reason"] == "tool_calls"
    for max_tokens in range(1, num_tokens, 7):
        said = both(live, max_tokens=max_tokens, **fields)
        assert said["finish_reason"] == "length"
        assert said["token_ids"] == whole["token_ids"][:max_tokens]
        for call in said["message"].get("tool_calls", ()):
            (complete,) = whole["message"]["tool_calls"]
            assert complete["arguments"].startswith(call["arguments"])


def test_c65_without_a_choice_the_model_may_answer_in_text(live: Server) -> None:
    said = both(live, tools=[TOOL, OTHER], max_tokens=16)
    assert said["message"].get("content") or said["message"].get("tool_calls")


def test_c64_an_empty_list_is_no_tools(live: Server) -> None:
    assert both(live, tools=[], max_tokens=4) == both(live, max_tokens=4)


def test_c34_calls_or_the_schema(live: Server) -> None:
    answer = {"type": "json_schema", "json_schema": {"name": "n", "schema": CITY}}
    said = both(live, tools=[TOOL], response_format=answer, max_tokens=60)
    if said["finish_reason"] == "stop":
        jsonschema.validate(json.loads(said["message"]["content"]), CITY)
    else:
        assert said["finish_reason"] in ("tool_calls", "length")


def test_c74_a_conversation_with_calls_goes_on(live: Server) -> None:
    def past(arguments: Any) -> list[Any]:
        call = {
            "id": "1",
            "type": "function",
            "function": {"name": "get_weather", "arguments": arguments},
        }
        return [
            *ASK,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "rain"}]},
        ]

    for arguments in ('{"city": "Paris", "days": 3}', '{"city": "Pa', "", None):
        said = both(live, messages=past(arguments), tools=[TOOL], max_tokens=4)
        assert said["finish_reason"] in ("stop", "length", "tool_calls")
    assert "is not JSON" in live.log


def test_mistakes_in_tools_are_named(live: Server) -> None:
    bad = {"type": "function", "function": {"name": "f", "parameters": {"type": "objekt"}}}
    body = {"messages": ASK, "tools": [TOOL, bad], "tool_choice": "required"}
    error = refused(live, CHAT, body)
    assert error["param"] == "tools[1].function.parameters"
    assert "(at /type)" in error["message"]


def test_readings_are_counted(live: Server) -> None:
    def counted(mode: str) -> float:
        name = "vllm:tool_call_parser_invocations_total"
        return live.metric(name, mode=mode, outcome="tool_call", request_type="chat_completions")

    before = counted("streaming"), counted("non_streaming")
    both(live, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, max_tokens=80)
    assert (counted("streaming"), counted("non_streaming")) == (before[0] + 1, before[1] + 1)


def test_the_input_of_a_custom_tool_satisfies_its_grammar(live: Server) -> None:
    definition = """
        start: "SELECT " (NAME ", ")~0..2 NAME " FROM \\"" NAME "\\";\\n"
        NAME: /[a-z]{1,8}/
    """
    right = r'SELECT ([a-z]{1,8}, ){0,2}[a-z]{1,8} FROM "[a-z]{1,8}";\n'
    form = {"type": "grammar", "grammar": {"syntax": "lark", "definition": definition}}
    sql = {"name": "run_sql", "description": "Query the database.", "format": form}
    fields = {"tools": [{"type": "custom", "custom": sql}], "tool_choice": "required"}
    for seed in range(2):
        said = both(
            live, **fields, parallel_tool_calls=False, max_tokens=80, temperature=1, seed=seed
        )
        (call,) = said["message"]["tool_calls"]
        assert call["name"] == "run_sql"
        assert re.fullmatch(right, call["input"])


@pytest.mark.parametrize("seed", range(4))
def test_a_schema_holds_after_the_reasoning(thinking: Server, seed: int) -> None:
    said = both(
        thinking,
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": CITY}},
        max_tokens=200,
        temperature=0.7,
        seed=seed,
    )
    message = said["message"]
    assert message["reasoning"]
    assert "{" not in message["reasoning"]
    if said["finish_reason"] == "stop":
        jsonschema.validate(json.loads(message["content"]), CITY)
    else:
        assert said["finish_reason"] == "length"
        assert "content" not in message or message["content"].lstrip().startswith("{")


@pytest.mark.parametrize("budget", [0, 3])
@pytest.mark.parametrize("fields", [{}, {"response_format": {"type": "json_object"}}])
def test_a_budget_ends_the_reasoning(thinking: Server, budget: int, fields: dict[str, Any]) -> None:
    said = both(thinking, max_tokens=12, thinking_token_budget=budget, **fields)
    free = both(thinking, max_tokens=12)
    assert said["token_ids"][:budget] == free["token_ids"][:budget]
    asked = {"prompt": ".", "add_special_tokens": False}
    (full_stop,) = thinking.post("/tokenize", asked)[1]["tokens"]
    assert full_stop not in free["token_ids"][: budget + 1], "it would have gone on"
    assert said["token_ids"][budget] == full_stop
    assert bool(said["message"].get("reasoning")) is (budget > 0)
    assert said["message"]["content"]
    if fields:
        assert said["message"]["content"].lstrip().startswith("{")


def test_a_demanded_call_comes_after_the_reasoning(thinking: Server) -> None:
    said = both(thinking, tools=[TOOL], tool_choice=NAMED, max_tokens=200, temperature=0.7, seed=1)
    assert said["message"]["reasoning"]
    if said["finish_reason"] == "stop":
        (call,) = said["message"]["tool_calls"]
        jsonschema.validate(json.loads(call["arguments"]), CITY)
    status, whole = thinking.post(CHAT, {"messages": ASK, "temperature": 0, "max_tokens": 60})
    assert status == 200
    details = whole["usage"]["completion_tokens_details"]
    assert 0 < details["reasoning_tokens"] <= whole["usage"]["completion_tokens"]
