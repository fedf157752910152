"""What is made of a streamed answer: times, text, tokens, and what counts as failed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.cli.bench_serve.http_pool import HttpPool
from octavo.cli.bench_serve.requests import (
    BODIES,
    AnswerReader,
    Caller,
    Result,
    Sample,
    chat_body,
    completion_body,
    wait_ready,
)
from tests.fakes.stub_server import Reply, answering, events, json_reply
from tests.integration.server import free_port

SAMPLE = Sample("a prompt", 5, 7, "bench-0")


def text(piece: str) -> dict[str, Any]:
    return {"choices": [{"text": piece}]}


def sse(*objects: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in objects)


USAGE = {"choices": [], "usage": {"prompt_tokens": 6, "completion_tokens": 3}}


def test_times_are_those_of_the_pieces() -> None:
    result = Result(prompt_len=5, start_time=10.0)
    reader = AnswerReader(result)
    reader.feed(sse(text("a")), 10.5)
    reader.feed(sse(text("b"), text("")), 11.0)
    reader.feed(sse(USAGE) + b"data: [DONE]\n\n", 12.0)
    reader.finish(200, "OK")
    assert result == Result(
        prompt_len=6,
        generated_text="ab",
        success=True,
        latency=1.0,
        output_tokens=3,
        ttft=0.5,
        itl=[0.5, 0.0],
        start_time=10.0,
    )


@given(st.data())
def test_it_does_not_matter_where_the_pieces_are_cut(data: st.DataObject) -> None:
    whole = b": ping\n\n" + sse(text("caf\u00e9"), text("b")) + b"data:{}\r\n\r\n" + sse(USAGE)
    result = Result(prompt_len=5, start_time=0.0)
    reader = AnswerReader(result)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        reader.feed(whole[begin:end], 1.0)
    reader.finish(200, "OK")
    assert (result.generated_text, result.output_tokens) == ("caf\u00e9b", 3)
    assert len(result.itl) == 1
    assert result.success


def test_chat_deltas_are_read() -> None:
    result = Result(prompt_len=5)
    reader = AnswerReader(result)
    for content in ("", "Hi", None):
        reader.feed(sse({"choices": [{"delta": {"content": content}}]}), 1.0)
    reader.finish(200, "OK")
    assert result.generated_text == "Hi"
    assert len(result.itl) == 2


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"", 200, "the stream ended without a token"),
        (sse(USAGE), 200, "the stream ended without a token"),
        (sse(text("a"), {"error": {"message": "died"}}), 200, "ended with an error: died"),
        (b"data: {\n\n", 200, "an event that cannot be read"),
        (b'{"error": {"message": "too long"}}', 400, "400 Why: too long"),
        (b"<html>", 502, "502 Why: <html>"),
        (b"", 503, "503 Why: no reason given"),
    ],
)
def test_failures_say_why(body: bytes, status: int, error: str) -> None:
    result = Result(prompt_len=5)
    reader = AnswerReader(result)
    reader.feed(body, 1.0)
    reader.finish(status, "Why")
    assert not result.success
    assert error in result.error


def test_bodies_are_those_of_the_apis() -> None:
    assert completion_body(SAMPLE, "m", None) == {
        "model": "m",
        "prompt": "a prompt",
        "repetition_penalty": 1.0,
        "max_tokens": 7,
    }
    assert completion_body(SAMPLE, "m", 2)["logprobs"] == 2
    assert chat_body(SAMPLE, "m", None) == {
        "model": "m",
        "messages": [{"role": "user", "content": "a prompt"}],
        "max_completion_tokens": 7,
    }
    assert BODIES["vllm"] is BODIES["openai"]


def send(url: str, **more: Any) -> Result:
    async def run() -> Result:
        async with HttpPool(url) as pool:
            caller = Caller(pool, "/v1/completions", completion_body, **more)
            return await caller.send(SAMPLE, "m")

    return asyncio.run(run())


def test_a_request_is_sent_as_asked_for() -> None:
    with answering(events(text("a"), USAGE)) as server:
        result = send(server.url, fields={"top_k": 3}, headers={"Authorization": "Bearer k"})
    assert result.success, result.error
    assert 0 < result.ttft <= result.latency
    (asked,) = server.asked
    assert asked.headers["authorization"] == "Bearer k"
    assert asked.headers["x-request-id"] == "bench-0"
    assert asked.json["stream_options"] == {"include_usage": True}
    assert asked.json["stream"] is True
    assert asked.json["top_k"] == 3


def test_a_refusal_and_a_server_that_is_not_there_are_results() -> None:
    with answering(json_reply({"error": {"message": "no"}}, 400)) as server:
        assert send(server.url).error == "400 Bad Request: no"
    assert "efused" in send(f"http://127.0.0.1:{free_port()}").error


def test_a_stream_that_breaks_is_failed() -> None:
    with answering(Reply(body=[sse(text("a"))], ends_early=True)) as server:
        assert send(server.url).error == "the server closed the connection"


def test_readiness_is_asked_for_until_it_is_there() -> None:
    async def run(url: str) -> Result:
        async with HttpPool(url) as pool:
            caller = Caller(pool, "/v1/completions", completion_body)
            return await wait_ready(caller, SAMPLE, "m", 10.0)

    with answering(Reply(503), events(text("a"))) as server:
        assert asyncio.run(run(server.url)).success
    assert len(server.asked) == 2


def test_readiness_that_does_not_come_is_told() -> None:
    async def run(url: str) -> Result:
        async with HttpPool(url) as pool:
            caller = Caller(pool, "/v1/completions", completion_body)
            return await wait_ready(caller, SAMPLE, "m", 0.05)

    with answering(Reply(503)) as server:
        assert "503" in asyncio.run(run(server.url)).error
