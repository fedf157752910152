"""Streams of the real model: their shape, their usage, their ends, their characters."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.integration.replies import (
    CHAT,
    COMPLETIONS,
    chunks,
    reasons_of,
    text_of,
    user,
    wait_idle,
)
from tests.integration.server import Server, Stream

EOS = "2"  # <|im_end|>
USAGE = {"stream_options": {"include_usage": True}}


def chat(text: str = "Name a colour.", **fields: Any) -> dict[str, Any]:
    return {"messages": user(text), "temperature": 0, "max_tokens": 8, **fields}


def test_c35_role_first_no_nulls_one_finish_reason(live: Server) -> None:
    events = chunks(live, CHAT, chat())
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas[0]["role"] == "assistant"
    for delta in deltas:
        assert delta.get("role", "assistant") == "assistant"
        assert isinstance(delta.get("content", ""), str)
    reasons = [event["choices"][0]["finish_reason"] for event in events]
    assert reasons[-1] in {"stop", "length"}
    assert set(reasons[:-1]) == {None}
    assert (
        text_of(events)
        == live.chat("Name a colour.", max_tokens=8)["choices"][0]["message"]["content"]
    )


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_c37_usage_comes_last_and_alone(live: Server, path: str) -> None:
    body = chat() if path == CHAT else {"prompt": "Red, green,", "max_tokens": 8}
    *earlier, last = chunks(live, path, {**body, **USAGE})
    assert all(event.get("usage") is None and event["choices"] for event in earlier)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize("options", [{}, None, {"include_usage": False}])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_c38_no_usage_unless_asked_for(live: Server, path: str, options: Any) -> None:
    body = chat() if path == CHAT else {"prompt": "Red, green,", "max_tokens": 8}
    events = chunks(live, path, {**body, "stream_options": options})
    assert all(event["choices"] and event.get("usage") is None for event in events)


@pytest.mark.parametrize(
    "fields",
    [{}, {"n": 3}, {"stop": ["e"]}, {"n": 3, "stop": ["e"]}],
    ids=["plain", "n", "stop", "n and stop"],
)
def test_c40_usage_is_one_number_whichever_way_one_asks(
    live: Server, fields: dict[str, Any]
) -> None:
    body = chat("How many letters has a word?", **fields)
    whole = live.post(CHAT, body)[1]["usage"]
    streamed = chunks(live, CHAT, {**body, **USAGE})[-1]["usage"]
    count = live.post("/tokenize", {"messages": body["messages"]})[1]["count"]
    assert whole == streamed
    assert whole["prompt_tokens"] == count  # once, also for n = 3
    assert whole["total_tokens"] == count + whole["completion_tokens"]


def test_c40_usage_adds_up_in_the_counters_also_after_an_abort(live: Server) -> None:
    def totals() -> tuple[float, float]:
        return live.metric("vllm:prompt_tokens_total"), live.metric("vllm:generation_tokens_total")

    prompts, generated = totals()
    with Stream(live, CHAT, chat("Tell me a long story.", max_tokens=2000)) as stream:
        events = stream.events()
        for _ in range(4):
            next(events)
    wait_idle(live)
    after_abort = totals()
    assert after_abort[0] > prompts
    assert after_abort[1] > generated
    usages = [live.post(CHAT, chat())[1]["usage"], chunks(live, CHAT, chat(**USAGE))[-1]["usage"]]
    assert usages[0] == usages[1]
    assert totals() == (
        after_abort[0] + 2 * usages[0]["prompt_tokens"],
        after_abort[1] + 2 * usages[0]["completion_tokens"],
    )


def test_c41_three_choices_interleave(live: Server) -> None:
    events = chunks(live, CHAT, chat(n=3, temperature=1, seed=1, ignore_eos=True, **USAGE))
    assert [event["choices"] for event in events].count([]) == 1
    assert events[-1]["usage"]["completion_tokens"] == 24
    order = [choice["index"] for event in events for choice in event["choices"]]
    assert set(order) == {0, 1, 2}
    assert order != sorted(order)
    for index in range(3):
        assert reasons_of(events, index) == ["length"]
    whole = live.post(CHAT, chat(n=3, temperature=1, seed=1, ignore_eos=True))[1]
    assert [c["index"] for c in whole["choices"]] == [0, 1, 2]
    assert [c["message"]["content"] for c in whole["choices"]] == [
        text_of(events, index) for index in range(3)
    ]


def test_c43_five_hundred_streams_each_with_one_done(live: Server) -> None:
    """In four rows: a step serves four as fast as one."""
    rng = random.Random(43)
    bodies = [
        chat(f"{number}", max_tokens=rng.randint(1, 4), temperature=1, seed=number)
        for number in range(500)
    ]
    with ThreadPoolExecutor(4) as rows:
        for events in rows.map(lambda body: chunks(live, CHAT, body), bodies):
            assert len(reasons_of(events)) == 1
    wait_idle(live)


@pytest.mark.parametrize("turn", ["first", "second"])
def test_c44_the_first_token_is_the_end(live: Server, turn: str) -> None:
    messages = user("hi")
    if turn == "second":
        messages += [{"role": "assistant", "content": "Hello."}, *user("And?")]
    body = {"messages": messages, "temperature": 0, "logit_bias": {EOS: 100}}
    status, whole = live.post(CHAT, body)
    assert status == 200
    choice = whole["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")
    assert whole["usage"]["completion_tokens"] >= 0
    events = chunks(live, CHAT, body)
    assert text_of(events) == ""
    assert reasons_of(events) == ["stop"]
    live.is_alive()


def token_ids(server: Server, text: str) -> list[int]:
    ids: list[int] = server.post("/tokenize", {"prompt": text})[1]["tokens"]
    return ids


@pytest.mark.parametrize("character", ["\U0001f600", "\u6f22", "\u30c4"])
def test_c82_a_prompt_cut_inside_a_character_is_not_repeated(live: Server, character: str) -> None:
    words, pieces = token_ids(live, "Some words"), token_ids(live, character)
    assert len(pieces) > 1
    prompt = words + pieces[:-1]
    body: dict[str, Any] = {"prompt": prompt, "temperature": 0}
    completing = {"logit_bias": {str(pieces[-1]): 100}, "max_tokens": 1}
    for fields in ({"max_tokens": 4}, completing):
        whole = live.post(COMPLETIONS, {**body, **fields})[1]["choices"][0]["text"]
        events = chunks(live, COMPLETIONS, {**body, **fields})
        assert text_of(events) == whole
        assert "words" not in events[0]["choices"][0]["text"]
    assert whole in (character, "")  # the last loop's: nothing but the character


def test_c83_a_character_cut_by_max_tokens_is_dropped_both_ways(live: Server) -> None:
    first = str(token_ids(live, "\U0001f600")[0])
    body = {"prompt": "A face:", "max_tokens": 1, "logit_bias": {first: 100}, "temperature": 0}
    whole = live.post(COMPLETIONS, body)[1]
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["choices"][0]["text"] == text_of(chunks(live, COMPLETIONS, body)) == ""
