"""Reasoning of chats on a played core: told from content, counted, hidden, and before a schema."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from octavo.config.engine import StructuredOutputsConfig
from octavo.config.server import ServerConfig
from octavo.sampling_params import ReasoningMarks
from tests.api.test_tools import TOOLS, WEATHER, parsers
from tests.fakes.api import Api, serving
from tests.fakes.asgi_client import Answer
from tests.fakes.fake_async_llm import saying
from tests.fakes.fake_template import FakeTemplate

SAYS = "<think>\nAdd them.\n</think>\n\nIt is 4."


def run(
    test: Callable[[Api], Awaitable[None]],
    says: str = SAYS,
    *,
    reasoning: str = "qwen3",
    server: ServerConfig | None = None,
    **options: Any,
) -> None:
    async def main() -> None:
        made = parsers("hermes", reasoning)
        async with serving(server, script=saying(says), parsers=made, **options) as api:
            await test(api)

    asyncio.run(main())


def summed(answer: Answer, name: str) -> str:
    deltas = [c["delta"] for chunk in answer.chunks for c in chunk["choices"]]
    return "".join(delta.get(name, "") for delta in deltas)


async def both(api: Api, **fields: Any) -> dict[str, Any]:
    """The message, which is the same whole and streamed."""
    whole = await api.client.chat(**fields)
    assert whole.status == 200, whole.body
    message: dict[str, Any] = whole.json["choices"][0]["message"]
    streamed = await api.client.chat(stream=True, **fields)
    assert summed(streamed, "content") == (message["content"] or "")
    for name in ("reasoning", "reasoning_content"):
        assert summed(streamed, name) == message.get(name, "")
    return message


def test_reasoning_has_its_own_field_under_both_names() -> None:
    async def test(api: Api) -> None:
        message = await both(api)
        assert message["content"].strip() == "It is 4."
        assert message["reasoning"].strip() == "Add them."
        assert message["reasoning_content"] == message["reasoning"]

    run(test)


def test_a_reply_without_reasoning_has_no_key_for_it() -> None:
    async def test(api: Api) -> None:
        message = await both(api, chat_template_kwargs={"enable_thinking": False})
        assert set(message) == {"role", "content", "refusal"}
        assert api.template.calls[-1]["enable_thinking"] is False
        assert (await both(api))["reasoning"] == "It is 4."
        assert set(await both(api, reasoning_effort="none")) == {"role", "content", "refusal"}

    run(test, "It is 4.")


def test_the_operators_switch_for_thinking_reaches_template_and_parser() -> None:
    async def test(api: Api) -> None:
        assert "reasoning" not in await both(api)
        assert api.template.calls[-1]["enable_thinking"] is False
        assert "reasoning" in await both(api, chat_template_kwargs={"enable_thinking": True})

    run(test, "4", server=ServerConfig(default_chat_template_kwargs={"enable_thinking": False}))


def test_tokens_of_reasoning_are_counted_the_same_whole_and_streamed() -> None:
    async def test(api: Api) -> None:
        usage = (await api.client.chat(n=2, temperature=1)).json["usage"]
        num_reasoning = len("<think>\nAdd them.\n") + len("</think")
        assert usage["completion_tokens_details"] == {"reasoning_tokens": 2 * num_reasoning}
        streamed = await api.client.chat(
            n=2,
            temperature=1,
            stream=True,
            stream_options={"include_usage": True, "continuous_usage_stats": True},
        )
        assert streamed.chunks[-1]["usage"] == usage
        counts = [
            chunk["usage"]["completion_tokens_details"]["reasoning_tokens"]
            for chunk in streamed.chunks[:-1]
        ]
        assert max(counts) == num_reasoning

    run(test)


def test_hidden_reasoning_is_nowhere() -> None:
    async def test(api: Api) -> None:
        fields = {"include_reasoning": False, "logprobs": True, "return_token_ids": True}
        whole = await api.client.chat(**fields)
        streamed = await api.client.chat(stream=True, **fields)
        for answer in (whole, streamed):
            assert answer.status == 200
            assert b"Add" not in answer.body
            assert b"token_ids" not in answer.body
            assert b'"logprobs":{' not in answer.body
        assert summed(streamed, "content") == whole.json["choices"][0]["message"]["content"]
        assert whole.json["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0

    run(test)


def test_reasoning_and_a_call() -> None:
    async def test(api: Api) -> None:
        whole = (await api.client.chat(tools=TOOLS)).json["choices"][0]
        assert whole["message"]["reasoning"] == "Look."
        assert whole["message"]["content"] is None
        assert whole["message"]["tool_calls"][0]["function"]["name"] == "get_weather"
        assert whole["finish_reason"] == "tool_calls"

    run(test, f"Look.</think>{WEATHER}", server=ServerConfig(enable_auto_tool_choice=True))


def test_c62_a_stop_string_in_the_reasoning_ends_the_reply_there() -> None:
    async def test(api: Api) -> None:
        answer = await api.client.chat(stop=["9.8"])
        (choice,) = answer.json["choices"]
        assert choice["message"]["reasoning"] == "g is "
        assert choice["message"]["content"] is None
        assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "9.8")

    run(test, "<think>g is 9.8 here</think>answer")


class ThinkingTemplate(FakeTemplate):
    def render(self, messages: list[dict[str, Any]], /, **variables: Any) -> str:
        end = "<think></think>" if variables.get("enable_thinking") is False else "<think>"
        return super().render(messages, **variables) + end


SCHEMA = {"response_format": {"type": "json_object"}}
OPEN = ReasoningMarks(["<think>"], ["</think>"], is_open=True)
CLOSED = msgspec.structs.replace(OPEN, is_open=False)


@pytest.mark.parametrize(
    ("reasoning", "template", "fields", "marks"),
    [
        ("qwen3", FakeTemplate(), {}, OPEN),
        ("qwen3", FakeTemplate(), {"chat_template_kwargs": {"enable_thinking": False}}, None),
        ("deepseek_r1", FakeTemplate(), {}, OPEN),
        ("think", FakeTemplate(), {}, CLOSED),
        ("think", ThinkingTemplate(), {}, OPEN),
    ],
)
def test_a_schema_holds_after_the_reasoning(
    reasoning: str, template: FakeTemplate, fields: Any, marks: ReasoningMarks | None
) -> None:
    async def test(api: Api) -> None:
        for choice in ({}, {"tools": TOOLS, "tool_choice": "required"}):
            answer = await api.client.chat(**SCHEMA, **fields, **choice)
            assert answer.status == 200, answer.body
            assert api.core.added[-1].grammar is not None
            assert api.core.added[-1].sampling_params.reasoning == marks
        await api.client.chat(**fields)
        assert api.core.added[-1].sampling_params.reasoning is None

    run(test, "{}", reasoning=reasoning, template=template)


def test_a_schema_may_hold_for_the_reasoning_too() -> None:
    async def test(api: Api) -> None:
        await api.client.chat(**SCHEMA)
        assert api.core.added[-1].sampling_params.reasoning is None

    config = StructuredOutputsConfig(enable_in_reasoning=True)
    run(test, "{}", structured_outputs=config)


def test_marks_that_are_special_tokens_are_seen_and_not_shown() -> None:
    async def main() -> None:
        from octavo.api.parsing.definition import ReasoningFormat
        from octavo.api.parsing.factory import ReplyParsers

        form = ReasoningFormat(begin=("<bos>",), end=("<eos>",))
        made = ReplyParsers(None, form, {"<bos>", "<eos>"})
        async with serving(parsers=made, script=lambda request: [*b"a", 256, *b"b", 257]) as api:
            message = (await api.client.chat()).json["choices"][0]["message"]
            assert (message["content"], message["reasoning"]) == ("a", "b")
            assert api.core.added[-1].sampling_params.skip_special_tokens is False

    asyncio.run(main())


def test_a_budget_needs_no_grammar_of_its_own() -> None:
    async def test(api: Api) -> None:
        calls = {"tools": TOOLS}
        for fields, ends in (({}, ["</think>"]), (calls, ["</think>", "<tool_call>"])):
            await api.client.chat(thinking_token_budget=7, **fields)
            sent = api.core.added[-1]
            assert sent.grammar is not None
            assert sent.grammar.text == "%llguidance {}\nstart: <[*]>*"
            marks = sent.sampling_params.reasoning
            assert marks == ReasoningMarks(["<think>"], ends, is_open=True, budget=7, is_free=True)
        await api.client.chat(thinking_token_budget=0, **SCHEMA)
        assert api.core.added[-1].sampling_params.reasoning == msgspec.structs.replace(
            OPEN, budget=0
        )
        await api.client.chat(
            thinking_token_budget=7, chat_template_kwargs={"enable_thinking": False}
        )
        assert api.core.added[-1].grammar is None, "there is nothing to limit"
        await api.client.chat(thinking_token_budget=-1)
        assert api.core.added[-1].grammar is None

    run(test, server=ServerConfig(enable_auto_tool_choice=True))


@pytest.mark.parametrize(
    ("reasoning", "fields", "words"),
    [
        (None, {}, "requires --reasoning-parser"),
        ("openai_gptoss", {}, "this model's reasoning parser"),
        ("granite", {}, "one token"),
        ("qwen3", {"use_beam_search": True, "n": 2}, "beam search"),
        ("qwen3", {"thinking_token_budget": -2}, "-1 for no limit"),
    ],
)
def test_a_budget_that_cannot_be_kept_is_refused(
    reasoning: str | None, fields: dict[str, Any], words: str
) -> None:
    async def main() -> None:
        made = parsers("hermes" if reasoning != "openai_gptoss" else "openai", reasoning)
        async with serving(parsers=made) as api:
            answer = await api.client.chat(**{"thinking_token_budget": 5, **fields})
            assert answer.status == 400, answer.body
            assert answer.error["param"] == "thinking_token_budget"
            assert words in answer.error["message"]

    asyncio.run(main())


def test_a_budget_of_a_completion_is_refused() -> None:
    async def test(api: Api) -> None:
        answer = await api.client.complete(thinking_token_budget=5)
        assert answer.status == 400
        assert answer.error["param"] == "thinking_token_budget"
        assert (await api.client.complete(thinking_token_budget=-1)).status == 200

    run(test)


def test_a_budget_is_refused_where_grammars_hold_for_the_reasoning() -> None:
    async def test(api: Api) -> None:
        assert (await api.client.chat(thinking_token_budget=5)).status == 200
        answer = await api.client.chat(thinking_token_budget=5, **SCHEMA)
        assert answer.status == 400
        assert "reasoning" in answer.error["message"]

    run(test, "{}", structured_outputs=StructuredOutputsConfig(enable_in_reasoning=True))


def test_a_batch_counts_the_reasoning_of_all_its_conversations() -> None:
    async def test(api: Api) -> None:
        single = (await api.client.chat()).json["usage"]["completion_tokens_details"]
        conversation = [{"role": "user", "content": "hi"}]
        answer = await api.client.post(
            "/v1/chat/completions/batch", {"messages": [conversation, conversation]}
        )
        details = answer.json["usage"]["completion_tokens_details"]
        assert details["reasoning_tokens"] == 2 * single["reasoning_tokens"] > 0

    run(test)
