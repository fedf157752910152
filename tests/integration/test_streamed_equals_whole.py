"""Fifty prompts in each of several ways: what a stream says in all is what a whole reply says.

The real model, all requests of a kind together, those that stream and those that do not: outputs do
not depend on company, so each pair must be equal to the character, the token and the number.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest

from tests.integration.crowd import Client, ask, request_bytes
from tests.integration.replies import CHAT, user
from tests.integration.server import Server, serving

SUBJECTS = (
    "a lighthouse", "the sea", "my grandmother's kitchen", "rain in the city", "a broken clock",
    "\u96ea\u5c71", "caf\u00e9s in M\u00fcnchen", "the number 7", "an emoji \U0001f98a", "Python",
)  # fmt: skip
QUESTIONS = (
    "Tell me about {}.",
    "Write a short poem on {}, please.",
    "List three facts about {} with numbers.",
    "Who first wrote about {}? Answer with a name and a year.",
    "Explain {} to a child:\n",
)
PROMPTS = [question.format(subject) for subject in SUBJECTS for question in QUESTIONS]
PERSON = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 12},
        "year": {"type": "integer", "minimum": -3000, "maximum": 2100},
        "tags": {"type": "array", "items": {"enum": ["old", "new", "\u00fcber"]}, "maxItems": 2},
    },
    "required": ["title", "year", "tags"],
    "additionalProperties": False,
}
Message = dict[str, Any]


def body(number: int, fields: dict[str, Any]) -> dict[str, Any]:
    """One request: every second one is drawn, with its own seed."""
    return {
        "messages": user(PROMPTS[number]),
        "max_tokens": 24,
        "temperature": 0.9 if number % 2 else 0,
        "seed": number,
        "return_token_ids": True,
        **fields,
    }


def joined(events: list[Any]) -> Message:
    """What a stream says in all, as a whole reply would say it."""
    said: Message = {"message": {}, "token_ids": [], "logprobs": None, "finish_reason": None}
    message = said["message"]
    for event in events:
        for choice in event["choices"]:
            delta = choice["delta"]
            message.setdefault("role", delta.get("role"))
            for name in ("content", "reasoning", "reasoning_content"):
                if name in delta:
                    message[name] = message.get(name, "") + delta[name]
            for call in delta.get("tool_calls", ()):
                add_call(message.setdefault("tool_calls", []), call)
            said["token_ids"] += choice.get("token_ids") or []
            if choice["logprobs"] is not None:
                said["logprobs"] = (said["logprobs"] or []) + choice["logprobs"]["content"]
            if choice["finish_reason"] is not None:
                assert said["finish_reason"] is None, "ended twice"
                said["finish_reason"] = choice["finish_reason"]
                said["stop_reason"] = choice.get("stop_reason")
        if event.get("usage"):
            said["usage"] = event["usage"]["completion_tokens"]
    return said


def add_call(calls: list[Any], delta: Any) -> None:
    if delta["index"] == len(calls):
        assert delta["id"]
        key = "input" if delta["type"] == "custom" else "arguments"
        calls.append({"type": delta["type"], "name": "", key: ""})
    call = calls[delta["index"]]
    for name, text in delta.get(call["type"], {}).items():
        call[name] += text


def said_whole(reply: Any) -> Message:
    """A whole reply in the form of `joined`. Ids of calls are random."""
    (choice,) = reply["choices"]
    message = {k: v for k, v in choice["message"].items() if v not in (None, [])}
    if "tool_calls" in message:
        message["tool_calls"] = [
            {"type": call["type"], **call[call["type"]]} for call in message["tool_calls"]
        ]
    logprobs = choice["logprobs"]
    return {
        "message": message,
        "token_ids": choice["token_ids"],
        "logprobs": None if logprobs is None else logprobs["content"],
        "finish_reason": choice["finish_reason"],
        "stop_reason": choice["stop_reason"],
        "usage": reply["usage"]["completion_tokens"],
    }


async def whole(port: int, fields: dict[str, Any]) -> Message:
    answer = await ask(port, CHAT, fields)
    assert answer.status == 200, answer.body
    return said_whole(answer.json)


async def streamed(port: int, fields: dict[str, Any]) -> Message:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    client = await Client.connect(port)
    await client.send(request_bytes(CHAT, {**fields, **options}))
    status, headers = await client.head()
    data = (await client.body(headers)).decode()
    await client.leave()
    assert status == 200, data
    *events, last = (line.removeprefix("data: ") for line in data.split("\n\n") if line)
    assert last == "[DONE]"
    message = joined([json.loads(event) for event in events])
    if not message["message"].get("content"):  # a delta may say "", a whole reply says null
        message["message"].pop("content", None)
    return message


def replies(server: Server, make: Callable[[int], dict[str, Any]]) -> list[Message]:
    """The fifty replies to requests with more fields, found equal whole and streamed."""

    async def run() -> tuple[list[Message], list[Message]]:
        bodies = [body(number, make(number)) for number in range(len(PROMPTS))]
        found = await asyncio.gather(
            *(whole(server.port, each) for each in bodies),
            *(streamed(server.port, each) for each in bodies),
        )
        return found[: len(bodies)], found[len(bodies) :]

    wholes, streams = asyncio.run(run())
    for prompt, one, other in zip(PROMPTS, wholes, streams, strict=True):
        if not one["message"].get("content"):
            one["message"].pop("content", None)
        assert one == other, prompt
    assert len(PROMPTS) == 50
    return wholes


def test_with_stop_strings(live: Server) -> None:
    stops = (["."], ["the", "The"], ["\n", ", "], [" and", " is", " in a"], ["e"])

    def make(number: int) -> dict[str, Any]:
        return {"stop": stops[number % 5], "include_stop_str_in_output": number % 3 == 0}

    found = replies(live, make)
    ended = [each["stop_reason"] for each in found if each["finish_reason"] == "stop"]
    assert len([reason for reason in ended if isinstance(reason, str)]) > 25
    for number, each in enumerate(found):
        content = each["message"].get("content", "")
        hits = [content.find(stop) for stop in stops[number % 5]]
        if number % 3:
            assert max(hits) == -1
        elif isinstance(each["stop_reason"], str):
            assert content.endswith(each["stop_reason"])


def test_with_logprobs(live: Server) -> None:
    found = replies(live, lambda number: {"logprobs": True, "top_logprobs": number % 6})
    for number, each in enumerate(found):
        assert len(each["logprobs"]) == len(each["token_ids"]) == each["usage"]
        assert {len(position["top_logprobs"]) for position in each["logprobs"]} == {number % 6}


def test_with_a_json_schema(live: Server) -> None:
    response_format = {"type": "json_schema", "json_schema": {"name": "n", "schema": PERSON}}
    close = {"json": PERSON, "disable_any_whitespace": True}

    def make(number: int) -> dict[str, Any]:
        how = {"structured_outputs": close} if number % 2 else {"response_format": response_format}
        return {"logprobs": number % 5 == 0, "max_tokens": 40, **how}

    found = replies(live, make)
    ended = [each for each in found if each["finish_reason"] == "stop"]
    assert len(ended) > 25
    for each in ended:
        jsonschema.validate(json.loads(each["message"]["content"]), PERSON)


PLACE = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "far": {"type": "boolean"}},
    "required": ["name", "far"],
    "additionalProperties": False,
}
RATING = {"type": "object", "properties": {"stars": {"enum": [1, 2, 3]}}, "required": ["stars"]}
SCHEMAS = {"place": PLACE, "rate": RATING}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
#: a reply begins with reasoning, up to the first full stop: any model does that
PLUGIN = """
from octavo.api.parsing.definition import Opening, ReasoningFormat
from octavo.api.parsing.names import register_reasoning_parser

register_reasoning_parser(
    "first_sentence",
    ReasoningFormat(begin=("<think>",), end=(".",), opening=Opening.REASONING),
)
"""


@pytest.fixture(scope="module")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that reads calls."""
    flags = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    short = ("--structured-outputs-config.disable_any_whitespace", "true")
    with serving(tmp_path_factory.mktemp("calling") / "log", *flags, *short) as server:
        yield server


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that takes the first sentence of every reply for reasoning."""
    folder = tmp_path_factory.mktemp("thinking")
    (folder / "plugin.py").write_text(PLUGIN)
    flags = ("--reasoning-parser-plugin", str(folder / "plugin.py"))
    with serving(folder / "log", "--reasoning-parser", "first_sentence", *flags) as server:
        yield server


def test_with_tools(calling: Server) -> None:
    """A call is demanded, of any tool or of one, or only offered."""
    named = {"type": "function", "function": {"name": "place"}}
    choices = ("required", named, "auto")

    def make(number: int) -> dict[str, Any]:
        return {
            "tools": TOOLS,
            "tool_choice": choices[number % 3],
            "parallel_tool_calls": False,
            "max_tokens": 64 if number % 3 < 2 else 16,
            "logprobs": number % 5 == 0,
        }

    num_whole = 0
    for number, each in enumerate(replies(calling, make)):
        calls = each["message"].get("tool_calls", [])
        if number % 3 == 2:
            continue
        assert "content" not in each["message"]
        if each["finish_reason"] != "length":
            (call,) = calls
            jsonschema.validate(json.loads(call["arguments"]), SCHEMAS[call["name"]])
            assert number % 3 == 0 or call["name"] == "place"
            assert each["finish_reason"] == ("stop" if number % 3 else "tool_calls")
            num_whole += 1
    assert num_whole > 20


def test_with_reasoning(thinking: Server) -> None:
    """With it stop strings, log-probabilities, or a schema that begins where reasoning ends."""
    schema = {"structured_outputs": {"json": PLACE, "disable_any_whitespace": True}}
    kinds: tuple[dict[str, Any], ...] = ({"stop": [" and"]}, {"logprobs": True}, schema, {})

    def make(number: int) -> dict[str, Any]:
        return {"max_tokens": 80 if number % 4 == 2 else 40, **kinds[number % 4]}

    num_both = num_objects = 0
    for number, each in enumerate(replies(thinking, make)):
        message = each["message"]
        num_both += bool(message.get("reasoning") and message.get("content"))
        assert message.get("reasoning") == message.get("reasoning_content")
        if number % 4 == 2 and each["finish_reason"] == "stop":
            jsonschema.validate(json.loads(message["content"]), PLACE)
            num_objects += 1
    assert num_both > 25
    assert num_objects > 3
