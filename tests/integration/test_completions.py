"""Completions of the real model: lists of prompts, stops, control tokens in text."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.replies import COMPLETIONS, chunks, reasons_of, text_of, user
from tests.integration.server import Server

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ\nABC"
IM_END = 2


def tokens(server: Server, text: str) -> list[int]:
    ids: list[int] = server.post("/tokenize", {"prompt": text})[1]["tokens"]
    return ids


@pytest.mark.parametrize("kind", ["texts", "ids", "text in a list", "ids in a list"])
def test_c52_one_choice_per_prompt_in_order(live: Server, kind: str) -> None:
    texts = ["One, two, three,", "The capital of France is", "2 + 2 ="]
    prompts: Any = texts
    if kind == "text in a list":
        prompts = texts = texts[:1]
    elif kind != "texts":
        prompts = [tokens(live, text) for text in texts]
        if kind == "ids in a list":
            prompts, texts = prompts[:1], texts[:1]
    fields: dict[str, Any] = {"max_tokens": 6, "temperature": 0, "n": 2}
    expected = [live.complete(text, max_tokens=6)["choices"][0]["text"] for text in texts]
    expected = [text for text in expected for _ in range(2)]
    reply = live.post(COMPLETIONS, {"prompt": prompts, **fields})[1]
    assert [c["index"] for c in reply["choices"]] == list(range(2 * len(texts)))
    assert [c["text"] for c in reply["choices"]] == expected
    events = chunks(live, COMPLETIONS, {"prompt": prompts, **fields})
    assert [text_of(events, index) for index in range(2 * len(texts))] == expected


@pytest.mark.parametrize("stream", [False, True])
def test_c56_a_stop_string_inside_a_token_ends_the_text_before_it(
    live: Server, stream: bool
) -> None:
    """The tokenizer has a token that contains "DE", which the model says next here."""
    body = {"prompt": ALPHABET, "temperature": 0, "max_tokens": 20}
    free = live.post(COMPLETIONS, {**body, "return_token_ids": True})[1]["choices"][0]
    assert free["text"].startswith("DEF")
    assert free["token_ids"][0] == tokens(live, "DEF")[0] != tokens(live, "DE")[0]
    for stop, text in (("DE", ""), ("EF", "D"), ("LM", "DEFGHIJK")):
        fields = {**body, "stop": [stop]}
        if stream:
            events = chunks(live, COMPLETIONS, fields)
            assert (text_of(events), reasons_of(events)) == (text, ["stop"])
        else:
            choice = live.post(COMPLETIONS, fields)[1]["choices"][0]
            assert (choice["text"], choice["finish_reason"]) == (text, "stop")


@pytest.mark.parametrize("include", [True, False])
def test_c58_a_stop_string_of_several_tokens_is_there_whole_or_not_at_all(
    live: Server, include: bool
) -> None:
    stop = "JKLMNOP"
    body = {
        "prompt": ALPHABET,
        "temperature": 0,
        "max_tokens": 30,
        "stop": [stop],
        "include_stop_str_in_output": include,
    }
    assert len(tokens(live, stop)) > 1
    events = chunks(live, COMPLETIONS, body)
    seen = ""
    for event in events:
        seen += event["choices"][0]["text"]
        partial = [stop[:k] for k in range(1, len(stop)) if seen.endswith(stop[:k])]
        assert not partial or seen.endswith(stop)
    assert seen == ("DEFGHI" + stop if include else "DEFGHI")
    assert live.post(COMPLETIONS, body)[1]["choices"][0]["text"] == seen


def test_c59_a_stop_string_that_never_comes_changes_nothing(live: Server) -> None:
    messages = user("Say hi.")
    body: dict[str, Any] = {"messages": messages, "temperature": 0, "max_tokens": 100}
    free = chunks(live, "/v1/chat/completions", body)
    events = chunks(live, "/v1/chat/completions", {**body, "stop": ["zzzz"]})
    assert text_of(events) == text_of(free)
    assert reasons_of(events) == reasons_of(free) == ["stop"]  # its own end of turn
    texts = [event["choices"][0]["delta"].get("content", "") for event in events[1:]]
    assert texts[0] != ""  # after the role's chunk


def test_c61_ignore_eos_gives_exactly_max_tokens(live: Server) -> None:
    bias = {"logit_bias": {str(IM_END): 100}}  # the end is what it would say every time
    ended = live.complete("x", max_tokens=64, **bias)
    assert (ended["usage"]["completion_tokens"], ended["choices"][0]["finish_reason"]) == (
        1,
        "stop",
    )
    full = live.complete("x", max_tokens=64, ignore_eos=True, **bias)
    assert full["usage"]["completion_tokens"] == 64
    assert full["choices"][0]["finish_reason"] == "length"


def test_c61_stop_token_ids_of_the_request_end_it_also_with_ignore_eos(live: Server) -> None:
    stop = tokens(live, "DEF")[0]
    reply = live.complete(ALPHABET, max_tokens=64, ignore_eos=True, stop_token_ids=[stop])
    choice = reply["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("", "stop", stop)
    assert reply["usage"]["completion_tokens"] == 1


def test_c80_a_control_token_in_a_users_text_is_visible_in_tokenize(live: Server) -> None:
    assert tokens(live, "<|im_end|>") == [IM_END]
    reply = live.post("/tokenize", {"messages": user("a<|im_end|>b"), "return_token_strs": True})[1]
    plain = live.post("/tokenize", {"messages": user("ab"), "return_token_strs": True})[1]
    spelled = reply["token_strs"].count("<|im_end|>")
    assert spelled == plain["token_strs"].count("<|im_end|>") + 1
    assert reply["tokens"].count(IM_END) == spelled
