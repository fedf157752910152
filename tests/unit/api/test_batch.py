"""Lines of a batch: each has its answer, in order, whatever the others are."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.api.asgi import Receive, Scope, Send, respond
from octavo.api.batch import BatchRunner, Counts
from octavo.api.errors import send_error
from octavo.errors import InvalidParameter, Overloaded


class Routes:
    """Answers `{"text": ...}` after as many turns of the loop as the body says."""

    def __init__(self, *, max_running: int = 1000) -> None:
        self.max_running = max_running
        self.num_running = 0
        self.most_running = 0
        self.headers: list[dict[bytes, bytes]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = json.loads((await receive())["body"])
        self.headers.append(dict(scope["headers"]))
        if self.num_running >= self.max_running:
            await send_error(send, Overloaded("full"))
            return
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        for _ in range(body.get("turns", 0)):
            await asyncio.sleep(0)
        self.num_running -= 1
        if body.get("fails"):
            await send_error(send, InvalidParameter("bad", param="fails"))
        else:
            await respond(send, 200, json.dumps({"text": body.get("text")}).encode())


def line(custom_id: str, **more: Any) -> bytes:
    body = more.pop("body", {})
    fields = {"custom_id": custom_id, "method": "POST", "url": "/v1/completions", "body": body}
    return json.dumps({**fields, **more}).encode()


def run(
    lines: list[bytes], routes: Any = None, *, max_concurrency: int = 4
) -> tuple[list[dict[str, Any]], Counts]:
    written: list[bytes] = []
    runner = BatchRunner(routes or Routes(), max_concurrency=max_concurrency)
    counts = asyncio.run(runner.run(lines, written.append))
    return [json.loads(each) for each in written], counts


def test_an_answer_is_a_line_of_openais_format() -> None:
    routes = Routes()
    (output,), counts = run([line("a", body={"text": "hi"})], routes)
    assert output["id"].startswith("octavo-")
    assert output["custom_id"] == "a"
    assert output["error"] is None
    assert output["response"]["status_code"] == 200
    assert output["response"]["body"] == {"text": "hi"}
    assert routes.headers[0][b"x-request-id"].decode() == output["response"]["request_id"]
    assert counts == Counts(answered=1)


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 6))
def test_the_order_is_that_of_the_input(turns: list[int], max_concurrency: int) -> None:
    lines = [line(str(n), body={"turns": t}) for n, t in enumerate(turns)]
    routes = Routes()
    outputs, counts = run(lines, routes, max_concurrency=max_concurrency)
    assert [output["custom_id"] for output in outputs] == [str(n) for n in range(len(turns))]
    assert counts.answered == len(turns)
    assert routes.most_running <= max_concurrency


def test_a_line_is_written_as_soon_as_those_before_it_are() -> None:
    written: list[bytes] = []
    seen: list[int] = []
    runner = BatchRunner(Routes(), max_concurrency=3, on_done=lambda: seen.append(len(written)))
    turns = (50, 5, 100)
    lines = [line(str(turn), body={"turns": turn}) for turn in turns]
    asyncio.run(runner.run(lines, written.append))
    assert seen == [0, 2, 3]  # the second waits for the first, not for the third


@pytest.mark.parametrize(
    ("text", "custom_id", "status", "says"),
    [
        (b"nonsense", None, 400, "JSON is malformed"),
        (b"[1]", None, 400, "Expected `object`"),
        (b'{"custom_id": "a", "url": "/v1/completions"}', "a", 400, "field `body`"),
        (b'{"url": "/v1/completions", "body": {}}', None, 400, "field `custom_id`"),
        (b'{"custom_id": 3, "url": "/v1/completions", "body": {}}', None, 400, "Expected `str`"),
        (b'{"custom_id": "a\xff"}', None, 400, "no batch request"),
        (b"[" * 5000, None, 400, "no batch request"),
        (line("a", method="GET"), "a", 400, "method must be POST, got 'GET'."),
        (line("a", url="/v1/embeddings"), "a", 404, "url must be one of /v1/chat/completions"),
        (line("a", body={"stream": True}), "a", 400, "stream must be false in a batch"),
        (line("a", body={"fails": True}), "a", 400, "bad"),
    ],
)
def test_a_bad_line_has_its_reason_and_the_others_their_answers(
    text: bytes, custom_id: str | None, status: int, says: str
) -> None:
    outputs, counts = run([line("before"), text, line("after")])
    assert [output["custom_id"] for output in outputs] == ["before", custom_id, "after"]
    bad = outputs[1]
    assert bad["response"]["status_code"] == status
    assert says in bad["error"]["message"]
    assert bad["error"].keys() == {"message", "type", "param", "code"}
    assert bad["response"]["body"] == {"error": bad["error"]}
    assert counts == Counts(answered=2, failed=1)


def test_empty_lines_are_no_requests() -> None:
    outputs, _ = run([b"", line("a"), b"  \t", line("b")])
    assert [output["custom_id"] for output in outputs] == ["a", "b"]


def test_a_full_queue_is_waited_for() -> None:
    lines = [line(str(n), body={"turns": 3}) for n in range(9)]
    outputs, counts = run(lines, Routes(max_running=2), max_concurrency=6)
    assert counts == Counts(answered=9)
    assert [output["custom_id"] for output in outputs] == [str(n) for n in range(9)]


def test_a_queue_that_stays_full_is_the_lines_answer() -> None:
    outputs, counts = run([line("a"), line("b")], Routes(max_running=0))
    assert counts == Counts(failed=2)
    assert {output["response"]["status_code"] for output in outputs} == {503}


def test_the_body_reaches_the_route_as_it_was_written() -> None:
    bodies: list[bytes] = []

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        bodies.append((await receive())["body"])
        await respond(send, 200, b"{}")

    text = b'{ "n":1.50, "big": 123456789012345678901234567890 }'
    run([b'{"custom_id": "a", "url": "/v1/completions", "body": %s}' % text], route)
    assert bodies == [text]


def test_a_line_that_cannot_be_written_ends_the_batch() -> None:
    def write(output: bytes) -> None:
        raise OSError("disk full")

    runner = BatchRunner(Routes(), max_concurrency=2)
    with pytest.raises(OSError, match="disk full"):
        asyncio.run(runner.run([line("a"), line("b", body={"turns": 10**9})], write))
