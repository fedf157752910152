"""The window, the queue cap and the defaults of a model, against real servers."""

from __future__ import annotations

import http.client
import json
import selectors
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, cast

import psutil
import pytest

from tests.integration.replies import (
    CHAT,
    chunks,
    reasons_of,
    refused,
    send,
    text_of,
    user,
    wait_idle,
)
from tests.integration.server import Server, serving

WINDOW = 128
DEFAULTS = {"temperature": 1.8, "top_k": 1, "do_sample": True}  # the likeliest token, always


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a window of 128 tokens and a generation_config.json."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "generation_config.json").write_text(json.dumps(DEFAULTS))
    flags = ("--max-model-len", str(WINDOW), "--generation-config", str(folder))
    with serving(folder / "log", *flags) as server:
        yield server


def test_c11_without_max_tokens_chats_go_on_to_the_window(small: Server) -> None:
    bodies: list[dict[str, Any]] = [
        {"messages": user(text), "ignore_eos": ignore_eos, "stream": stream}
        for text in ("Tell me a story.", "Count.", "Say hi.")
        for ignore_eos in (True, False)
        for stream in (True, False)
    ]

    def ask(body: dict[str, Any]) -> tuple[str, int]:
        if body["stream"]:
            events = chunks(small, CHAT, {**body, "stream_options": {"include_usage": True}})
            (reason,) = reasons_of(events)
            return reason, events[-1]["usage"]["total_tokens"]
        reply = small.post(CHAT, body)[1]
        return reply["choices"][0]["finish_reason"], reply["usage"]["total_tokens"]

    with ThreadPoolExecutor(len(bodies)) as clients:
        answers = list(clients.map(ask, bodies))
    for body, (reason, num_tokens) in zip(bodies, answers, strict=True):
        if body["ignore_eos"] or reason == "length":
            assert (reason, num_tokens) == ("length", WINDOW)
        else:
            assert reason == "stop"
            assert num_tokens < WINDOW
    small.is_alive()


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("stream", [False, True])
def test_c17_limits_beyond_the_window(small: Server, field: str, stream: bool) -> None:
    messages = user("Hello.")
    num_prompt = small.post("/tokenize", {"messages": messages})[1]["count"]
    long = user("word " * 200)
    num_long = small.post("/tokenize", {"messages": long})[1]["count"]

    over = refused(small, CHAT, {"messages": long, field: 5, "stream": stream})
    assert str(num_long) in over["message"]
    assert str(WINDOW) in over["message"]

    above = refused(small, CHAT, {"messages": messages, field: WINDOW + 1, "stream": stream})
    assert str(WINDOW + 1) in above["message"]
    assert str(WINDOW) in above["message"]

    body = {"messages": messages, field: WINDOW, "ignore_eos": True, "stream": stream}
    if stream:
        events = chunks(small, CHAT, {**body, "stream_options": {"include_usage": True}})
        reason, usage = reasons_of(events)[0], events[-1]["usage"]
    else:
        reply = small.post(CHAT, body)[1]
        reason, usage = reply["choices"][0]["finish_reason"], reply["usage"]
    assert reason == "length"
    assert usage["completion_tokens"] == WINDOW - num_prompt


def test_c17_limits_of_completions(small: Server) -> None:
    over = refused(small, "/v1/completions", {"prompt": [5] * (WINDOW + 1)})
    assert str(WINDOW + 1) in over["message"]
    assert str(WINDOW) in over["message"]
    refused(small, "/v1/completions", {"prompt": [5] * WINDOW})
    reply = small.complete([5] * (WINDOW - 1), max_tokens=64, ignore_eos=True)  # type: ignore[arg-type]
    assert reply["usage"]["completion_tokens"] == 1
    assert reply["choices"][0]["finish_reason"] == "length"


def test_c55_the_models_defaults_are_printed_once_and_the_request_wins(small: Server) -> None:
    lines = [line for line in small.log.splitlines() if "sampling defaults from" in line]
    assert len(lines) == 1
    assert "temperature=1.8, top_k=1" in lines[0]
    assert "--generation-config vllm turns them off" in lines[0]
    body: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 24}

    def texts(**fields: Any) -> set[str]:
        return {
            small.post("/v1/completions", {**body, "seed": seed, **fields})[1]["choices"][0]["text"]
            for seed in range(3)
        }

    assert texts() == texts(temperature=0)  # top_k of the file
    assert len(texts(top_k=-1)) == 3  # the request's own, at temperature 1.8


@pytest.fixture(scope="module")
def capped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that takes two requests at a time."""
    log = tmp_path_factory.mktemp("capped") / "log"
    with serving(log, "--max-num-queued-reqs", "2") as server:
        yield server


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def test_c101_excess_requests_are_refused_at_once(capped: Server) -> None:
    """Within 100 ms each. Other processes may hold the machine, so what counts is the front end's
    own time for all of them; not even the luckiest may have waited for a running request."""
    body = {"messages": user("Tell me a story."), "max_tokens": 60, "ignore_eos": True}
    capped.is_alive()  # the first chat loads Jinja
    front = psutil.Process(capped.pid)
    front_s = cpu_s(front)
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        sent_s = {}
        for _ in range(50):
            connection = stack.enter_context(send(capped, CHAT, body))
            sent_s[connection] = time.monotonic()
            selector.register(connection, selectors.EVENT_READ)
        replies, waits = [], []
        while len(replies) < 50:
            for key, _ in selector.select(timeout=30):
                connection = cast(socket.socket, key.fileobj)
                selector.unregister(connection)
                wait_s = time.monotonic() - sent_s[connection]
                reply = http.client.HTTPResponse(connection)
                reply.begin()
                replies.append((reply.status, reply.headers, json.loads(reply.read())))
                if reply.status != 200:
                    waits.append(wait_s)
                    if len(waits) == 48:
                        front_s = cpu_s(front) - front_s
    accepted = [content for status, _, content in replies if status == 200]
    assert len(accepted) == 2
    assert all(content["usage"]["completion_tokens"] == 60 for content in accepted)
    refusals = [reply for reply in replies if reply[0] != 200]
    assert {status for status, _, _ in refusals} == {503}
    assert all(int(headers["Retry-After"]) >= 1 for _, headers, _ in refusals)
    assert all(content["error"]["message"] for _, _, content in refusals)
    assert len(waits) == 48
    assert front_s < 0.1
    assert min(waits) < 0.1
    rejected = capped.metric("vllm:admission_rejections_total", reason="max_num_queued_reqs")
    assert rejected == len(refusals)


def test_c101_three_choices_count_three(capped: Server) -> None:
    wait_idle(capped)
    refused(capped, CHAT, {"messages": user("hi"), "n": 3, "max_tokens": 1}, status=503)
    assert len(capped.chat("hi", n=2, max_tokens=1)["choices"]) == 2


def test_c55_a_chat_of_the_defaults_is_the_likeliest(small: Server) -> None:
    body = {"messages": user("Name a colour."), "max_tokens": 8}
    assert text_of(chunks(small, CHAT, body)) == text_of(
        chunks(small, CHAT, {**body, "temperature": 0})
    )
