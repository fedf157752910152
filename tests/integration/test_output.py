"""What clients see of the real model's tokens: text, log probabilities, bytes, offsets, echoes,
the same streamed and whole."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.integration.replies import CHAT, COMPLETIONS, chunks, reasons_of, text_of, user
from tests.integration.server import Server

VOCAB_SIZE = 49_152
EOS = 2
TEXTS = [
    "The quick brown fox",
    "Zahlen: 1, 2, 3, \u00e4\u00f6\u00fc",
    "\U0001f600\U0001f1e9\U0001f1ea\U0001f469\u200d\U0001f467 ",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8",
    "def f(x):\n\treturn",
    "   ",
]
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "stop": {"stop": ["e", " th", "\n\n", "\u0438"]},
    "logprobs": {"logprobs": 2},
    "echo": {"echo": True},
    "echo and logprobs": {"echo": True, "logprobs": 1},
    "two": {"n": 2},
}


def logprobs_of(events: list[Any], index: int = 0) -> dict[str, list[Any]] | None:
    """The logprobs of one choice of a stream of completions, joined."""
    joined: dict[str, list[Any]] = {}
    for choice in (c for event in events for c in event["choices"] if c["index"] == index):
        for name, values in (choice["logprobs"] or {}).items():
            joined.setdefault(name, []).extend(values)
    return joined or None


def random_prompt(rng: random.Random) -> str | list[int]:
    """A text, or tokens that need not make sense and may begin and end inside characters."""
    if rng.random() < 0.5:
        return rng.choice(TEXTS) + rng.choice(["", " ", "\U0001f600", "a"])
    return [rng.randrange(3, VOCAB_SIZE) for _ in range(rng.randint(1, 12))]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_its_whole_cut_up(live: Server, kind: str) -> None:
    rng = random.Random(kind)
    bodies = [
        {
            "prompt": random_prompt(rng),
            "max_tokens": rng.randint(1, 8),
            "temperature": 1.5,
            "seed": seed,
            **KINDS[kind],
        }
        for seed in range(50)
    ]
    with ThreadPoolExecutor(8) as clients:
        wholes = list(clients.map(lambda body: live.post(COMPLETIONS, body)[1], bodies))
        streams = list(clients.map(lambda body: chunks(live, COMPLETIONS, body), bodies))
    for whole, events in zip(wholes, streams, strict=True):
        for choice in whole["choices"]:
            index = choice["index"]
            assert text_of(events, index) == choice["text"]
            assert reasons_of(events, index) == [choice["finish_reason"]]
            assert logprobs_of(events, index) == choice["logprobs"]
    assert any("\ufffd" not in choice["text"] for whole in wholes for choice in whole["choices"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("num_top", [1, 0])
def test_c8_an_echo_of_the_prompt_alone(live: Server, stream: bool, num_top: int) -> None:
    prompt = "The capital of France is Paris."
    tokens = live.post("/tokenize", {"prompt": prompt})[1]["tokens"]
    body = {"prompt": prompt, "echo": True, "max_tokens": 0, "logprobs": num_top}
    if stream:
        events = chunks(live, COMPLETIONS, {**body, "stream_options": {"include_usage": True}})
        text, logprobs, usage = text_of(events), logprobs_of(events), events[-1]["usage"]
        reasons = reasons_of(events)
    else:
        reply = live.post(COMPLETIONS, body)[1]
        (choice,) = reply["choices"]
        text, logprobs, usage = choice["text"], choice["logprobs"], reply["usage"]
        reasons = [choice["finish_reason"]]
    assert (text, reasons) == (prompt, ["length"])
    assert usage == {
        "prompt_tokens": len(tokens),
        "completion_tokens": 0,
        "total_tokens": len(tokens),
    }
    assert logprobs is not None
    assert [len(values) for values in logprobs.values()] == [len(tokens)] * 4
    assert logprobs["token_logprobs"][0] is None
    assert all(-50 < value < 0 for value in logprobs["token_logprobs"][1:])
    tops = logprobs["top_logprobs"]
    assert tops == [None] * len(tokens) if not num_top else tops[0] is None and all(tops[1:])


def test_c8_an_echo_counts_its_prompt_once_and_generates_nothing(live: Server) -> None:
    before = live.metric("vllm:prompt_tokens_total"), live.metric("vllm:generation_tokens_total")
    rng = random.Random(8)
    prompts = [[rng.randrange(3, VOCAB_SIZE) for _ in range(20)] for _ in range(3)]
    body = {"prompt": prompts, "echo": True, "max_tokens": 0, "logprobs": 0, "n": 2}
    choices = live.post(COMPLETIONS, body)[1]["choices"]
    assert len(choices) == 6
    for index, choice in enumerate(choices):
        assert choice["index"] == index
        assert choice["logprobs"] == choices[index // 2 * 2]["logprobs"]
    after = live.metric("vllm:prompt_tokens_total"), live.metric("vllm:generation_tokens_total")
    assert after == (before[0] + 60, before[1])


@pytest.mark.parametrize("stream", [False, True])
def test_c46_logprobs_of_a_chat_without_alternatives(live: Server, stream: bool) -> None:
    body = {"messages": user("Say hi."), "logprobs": True, "max_tokens": 5, "temperature": 0}
    if stream:
        events = chunks(live, CHAT, body)
        parts = [event["choices"][0].get("logprobs") for event in events]
        entries = [entry for part in parts if part for entry in part["content"]]
        text = text_of(events)
    else:
        choice = live.post(CHAT, body)[1]["choices"][0]
        entries, text = choice["logprobs"]["content"], choice["message"]["content"]
    assert len(entries) == 5
    for entry in entries:
        assert set(entry) == {"token", "logprob", "bytes", "top_logprobs"}
        assert entry["top_logprobs"] == []
        assert entry["logprob"] <= 0
        assert bytes(entry["bytes"]).decode("utf-8", "replace") == entry["token"]
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == text


def test_c47_logprobs_of_a_completion_without_alternatives(live: Server) -> None:
    found = live.complete("One, two,", max_tokens=4, logprobs=0)["choices"][0]["logprobs"]
    assert len(found["token_logprobs"]) == 4
    assert all(value <= 0 for value in found["token_logprobs"])
    assert found["top_logprobs"] == [None] * 4


@pytest.mark.parametrize("stream", [False, True])
def test_c49_no_infinity_however_many_tokens_are_excluded(live: Server, stream: bool) -> None:
    """300 tokens at -100, then all but ten excluded."""
    likely = live.post(
        COMPLETIONS, {"prompt": "One, two,", "max_tokens": 1, "logprobs": 20, "temperature": 0}
    )[1]
    assert likely["choices"][0]["logprobs"]["top_logprobs"][0]
    banned = {str(token_id): -100 for token_id in range(100, 400)}
    for fields in ({"logit_bias": banned}, {"allowed_token_ids": list(range(1000, 1010))}):
        body = {
            "messages": user("Say hi."),
            "logprobs": True,
            "top_logprobs": 20,
            "max_tokens": 3,
            "stream": stream,
            **fields,
        }
        data = live.request("POST", CHAT, body)[2].decode()
        assert "logprob" in data
        for word in ("Infinity", "NaN", "-inf", "null,null"):
            assert word not in data.replace('"finish_reason":null', "")
        for line in data.replace("data: ", "").splitlines():
            if line and line != "[DONE]":
                event = json.loads(line, parse_constant=_refuse)
                for choice in event["choices"]:
                    for entry in (choice.get("logprobs") or {"content": []})["content"]:
                        values = [entry["logprob"], *(t["logprob"] for t in entry["top_logprobs"])]
                        assert len(values) == 21
                        assert all(-9999.0 <= value <= 0 for value in values)


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@pytest.mark.parametrize("n", [1, 2])
def test_c50_offsets_of_a_streamed_echo_index_the_joined_text(live: Server, n: int) -> None:
    texts = [text + "\U0001f600 and more" for text in TEXTS]
    # the last prompt ends inside a character that the output may complete
    cut = live.post("/tokenize", {"prompt": "A face \U0001f600"})[1]["tokens"][:-1]
    for prompt in [*texts, cut]:
        body = {
            "prompt": prompt,
            "echo": True,
            "logprobs": 1,
            "max_tokens": 8,
            "temperature": 1,
            "seed": 3,
            "n": n,
        }
        events = chunks(live, COMPLETIONS, body)
        for index in range(n):
            text, logprobs = text_of(events, index), logprobs_of(events, index)
            assert logprobs is not None
            offsets = logprobs["text_offset"]
            assert offsets == sorted(offsets)
            for token, offset in zip(logprobs["tokens"], offsets, strict=True):
                assert 0 <= offset <= len(text)
                if "\ufffd" not in token and not token.startswith("<|"):
                    assert text[offset : offset + len(token)] == token
            if isinstance(prompt, str):
                assert text.startswith(prompt)


def test_bytes_of_all_tokens_are_the_bytes_of_the_text(live: Server) -> None:
    """Also where a character is spread over tokens: each has its own bytes."""
    ids = live.post("/tokenize", {"prompt": "\U0001f600\u6f22"})[1]["tokens"]
    assert len(ids) > 3
    body = {
        "messages": user("hi"),
        "logprobs": True,
        "max_tokens": 40,
        "temperature": 2,
        "seed": 1,
        "allowed_token_ids": [*ids, *range(300, 320)],
        "ignore_eos": True,
    }
    choice = live.post(CHAT, body)[1]["choices"][0]
    entries = choice["logprobs"]["content"]
    assert len(entries) == 40
    assert any(entry["token"] == "\ufffd" for entry in entries)
    data = b"".join(bytes(entry["bytes"]) for entry in entries)
    said = choice["message"]["content"]
    assert said in (data.decode("utf-8", "replace"), data.decode("utf-8", "replace")[:-1])


def test_choices_of_one_stream_keep_their_tokens_apart(live: Server) -> None:
    body = {"prompt": "Once", "n": 4, "max_tokens": 12, "temperature": 1, "seed": 5, "logprobs": 0}
    events = chunks(live, COMPLETIONS, {**body, "ignore_eos": True})
    order = [choice["index"] for event in events for choice in event["choices"]]
    assert order != sorted(order)
    for index in range(4):
        alone = live.post(COMPLETIONS, {**body, "n": 1, "seed": 5 + index, "ignore_eos": True})[1]
        assert text_of(events, index) == alone["choices"][0]["text"]
        assert logprobs_of(events, index) == alone["choices"][0]["logprobs"]


def test_c13_nothing_is_left_to_sample_after_some_tokens(live: Server) -> None:
    """Found out while sampling: the one token that is allowed may not come twice."""
    word = live.post("/tokenize", {"prompt": " a"})[1]["tokens"]
    assert len(word) == 1
    body = {"prompt": "x", "allowed_token_ids": word, "bad_words": ["a a"], "max_tokens": 5}
    status, reply = live.post(COMPLETIONS, body)
    assert status == 400
    assert "every token was excluded for this request" in reply["error"]["message"]
    assert reply["error"]["type"] == "BadRequestError"
    live.is_alive()
