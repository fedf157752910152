"""One bad request among thirty-two running ones: it gets its error, nobody else notices.

The server is real but for faults that requests can ask for (`tests/fakes/poisoned_server.py`,
`poisoned_core.py`, `poison_processor.py`). After each case the other thirty-one must have said what
they say alone, to the bit, tokens and log-probabilities; nothing may run, no block be held, and the
counts of ended requests must add up.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.fakes.poison_processor import WRONGS
from tests.fakes.poisoned_core import EVENT_FAULT
from tests.fakes.poisoned_server import (
    DETOKENIZER_FAULT,
    LOGPROBS_FAULT,
    REPLY_FAULT,
    STOP_FAULT,
)
from tests.fakes.tiny_folder import VOCAB_SIZE, write_tiny_folder
from tests.integration.crowd import (
    BANNED,
    COMPLETIONS,
    Answer,
    Client,
    Crowd,
    ask,
    request_bytes,
    talk,
)
from tests.integration.replies import CHAT, user
from tests.integration.server import Server, serving

NAN_TOKEN = 204
WINDOW = 512
TEMPLATE = """
{%- if messages[0].role == "system" %}{{ raise_exception("Say it as a user.") }}{% endif %}
{%- for _ in range(spin | default(0)) %}{% endfor %}
{%- for message in messages %}{{ message.content }}{% endfor %}"""
LIMIT_S = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("poison")
    events = {"enable_kv_cache_events": True, "endpoint": "tcp://127.0.0.1:0"}
    with serving(
        folder / "log",
        *("--chat-template", TEMPLATE),
        *("--logits-processors", "tests.fakes.poison_processor:Poison"),
        *("--kv-events-config", json.dumps(events)),
        *("--max-num-seqs", "64"),
        *("--max-num-batched-tokens", "96"),
        *("--max-num-queued-reqs", "100"),
        model=write_tiny_folder(folder / "model", poison=NAN_TOKEN, window=WINDOW),
        module="tests.fakes.poisoned_server",
        env={"VLLM_SERVER_DEV_MODE": "1"},
    ) as running:
        yield running


@pytest.fixture(scope="module")
def crowd(server: Server) -> Crowd:
    return Crowd(server)


@dataclass
class Poison:
    """A bad request.

    Attributes:
        body: of `POST path`, or bytes to send as they are, or who sends what.
        status: of the answer; None: there is none to look at.
        says: found in its message.
        ends: how its requests in the core end; several are possible where time decides.
    """

    body: Any
    status: int | None = 200
    says: str = ""
    ends: list[dict[str, int]] = field(default_factory=lambda: [{}])
    path: str = COMPLETIONS
    headers: dict[str, str] = field(default_factory=dict)

    async def run(self, port: int) -> None:
        if callable(self.body):
            answer = await self.body(port)
        elif isinstance(self.body, bytes) and self.body[:1] != b"{":
            answer = await talk(port, self.body)
        else:
            answer = await ask(port, self.path, self.body)
        if self.status is None:
            return
        assert answer.status == self.status, (answer.status, answer.body[:500])
        assert self.headers.items() <= answer.headers.items()
        if self.status != 200:
            error = answer.json["error"]
            assert error["message"].isprintable()
            assert re.search(self.says, error["message"]), error
        elif self.says:  # an error after the first event
            *_, error, done = answer.events
            assert done == "[DONE]"
            assert re.search(self.says, json.loads(error)["error"]["message"]), error


def completion(**fields: Any) -> dict[str, Any]:
    return {"prompt": [7, 8, 9], "max_tokens": 8, "temperature": 0, "ignore_eos": True, **fields}


def refused(says: str, *, status: int = 400, path: str = COMPLETIONS, **fields: Any) -> Poison:
    """Refused before the core hears of it."""
    body = completion(**fields) if path == COMPLETIONS else {"max_tokens": 4, **fields}
    return Poison(body, status, says, path=path)


def failed(says: str, *, status: int = 500, **fields: Any) -> Poison:
    """Fails in the core, or on the way back from it."""
    return Poison(completion(**fields), status, says, [{"error": 1}])


def served(num: int = 1, reason: str = "length", **fields: Any) -> Poison:
    """Bad only for what it costs."""
    return Poison(completion(**fields), ends=[{reason: num}])


def regex(text: str) -> dict[str, str]:
    return {"regex": text}


REFUSED = {
    "no HTTP": Poison(b"\0\1\2\3\r\n\r\n", 400, "not valid HTTP"),
    "two lengths": Poison(
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{}", 400
    ),
    "long head": Poison(b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000, 431),
    "no JSON": Poison(b"{'prompt': 1}", 400, "JSON decode error"),
    "deep JSON": Poison(request_bytes(COMPLETIONS, b"[" * 100_000), 400, "body"),
    "many values": Poison(request_bytes(COMPLETIONS, b"[" + b"1," * 1_000_001), 413, "values"),
    "no such route": Poison(b"{}", 404, path="/v1/nothing"),
    "wrong method": Poison(request_bytes(COMPLETIONS, b"", method="PUT"), 405),
    "wrong type": refused("temperature: ", temperature="warm"),
    "missing field": Poison(b"{}", 400, "prompt: Field required"),
    "no such model": refused("does not exist", status=404, model="gpt-9"),
    "temperature": refused("temperature must be in", temperature=3),
    "n": refused("n must be in", n=0),
    "n times prompts": refused("more than 16384", prompt=["a"] * 600, n=100),
    "token id": refused("not in the model's vocabulary", prompt=[99999]),
    "bias of no token": refused("not in the model's vocabulary", logit_bias={"99999": 1}),
    "no token allowed": refused("must not be empty", allowed_token_ids=[]),
    "nothing left": refused("no token to begin", allowed_token_ids=[65], bad_words=["b"]),
    "window": refused("maximum context length", prompt=[5] * WINDOW),
    "text longer than a window": refused("maximum context length", prompt="a " * 100_000),
    "stop of a megabyte": refused("stop may have 65536", stop="x" * 1_000_000),
    "thousands of bad words": refused("bad_words has 5000", bad_words=["a"] * 5000),
    "many logprobs": refused("greater than max allowed", logprobs=1000),
    "lone surrogate": Poison(b'{"prompt": "\\ud800"}', 400, "body"),
    "salt": refused("cache_salt", cache_salt="../x"),
    "template refuses": refused(
        "Say it as a user", path=CHAT, messages=[{"role": "system", "content": "x"}]
    ),
    "template without end": refused(
        "builds more than",
        path=CHAT,
        messages=user("x"),
        chat_template_kwargs={"spin": 10**12},
    ),
    "template of its own": refused(
        "not set", path=CHAT, messages=user("x"), chat_template="{{ 1 }}"
    ),
    "no messages": refused("messages", path=CHAT, messages=[]),
    "regex": refused("structured_outputs", structured_outputs=regex("(")),
    "regex that looks ahead": refused("structured_outputs", structured_outputs=regex("(?=a)b")),
    "grammar": refused("structured_outputs", structured_outputs={"grammar": "start: nowhere"}),
    "terminals that multiply": refused(
        "1000000 characters",
        structured_outputs={
            "grammar": f'start: A\nA: {"B " * 9999}\nB: {"C " * 9999}\nC: "x"',
        },
    ),
    "schema keyword": refused(
        "uniqueItems", structured_outputs={"json": {"type": "array", "uniqueItems": True}}
    ),
    "schema too large": refused(
        "characters", structured_outputs={"json": {"enum": ["x" * 300_000]}}
    ),
    "schema too deep": refused(
        "nest", structured_outputs={"json": '{"items":' * 100 + "{}" + "}" * 100}
    ),
    "processor refuses": refused("poison=invalid is refused", vllm_xargs={"poison": "invalid"}),
    "processor's check fails": refused(
        "Internal server error", status=500, vllm_xargs={"poison": "check-bug"}
    ),
    "queue full": Poison(
        completion(n=100), 503, "max_num_queued_reqs=100", headers={"retry-after": "1"}
    ),
}

FAILED = {
    "core refuses": failed("too much", status=400, vllm_xargs={"poison": "refuse"}),
    "core cannot add": failed("_Bug: as asked", vllm_xargs={"poison": "add-bug"}),
    "larger than the cache": failed(
        "whole KV cache", status=400, vllm_xargs={"poison": "too-long"}
    ),
    "compile takes too long": failed(
        "0.4 s to compile", status=400, structured_outputs=regex("compile-slow")
    ),
    "compile fails": failed("compiled: _Bug: as asked", structured_outputs=regex("compile-bug")),
    "compile refuses": failed(
        "cannot be used: as asked", status=400, structured_outputs=regex("compile-error")
    ),
    "grammar cannot begin": failed("could not be started", structured_outputs=regex("start-bug")),
    "row of masks fails": failed("could not be computed", structured_outputs=regex("row-bug")),
    "sampler's mask fails": failed(
        "left its grammar", status=400, structured_outputs=regex("fill-error")
    ),
    "mask fails": failed("could not be computed", structured_outputs=regex("mask-bug")),
    "mask is too much work": failed(
        "cannot be followed", status=400, structured_outputs=regex("mask-error")
    ),
    "grammar fails": failed("could not be advanced", structured_outputs=regex("accept-bug")),
    "grammar is left": failed(
        "left its grammar", status=400, structured_outputs=regex("accept-error")
    ),
    "end of the grammar fails": failed(
        "could not be advanced", structured_outputs=regex("end-bug")
    ),
    "grammar without a token": failed(
        "every token was excluded",
        status=400,
        structured_outputs=regex("[a-z]{9}"),
        allowed_token_ids=[1],
    ),
    "weights": failed("not numbers", prompt=[1, 2, NAN_TOKEN, 3]),
    "weights, later": failed("not numbers", logit_bias={str(NAN_TOKEN): 100}),
    "processor cannot begin": failed("RuntimeError: as asked", vllm_xargs={"poison": "new"}),
    "processor has no memory": failed("MemoryError: as asked", vllm_xargs={"poison": "new memory"}),
    "processor is none": failed("TypeError", vllm_xargs={"poison": "no function"}),
    "detokenizer": failed("could not be made", logit_bias={str(DETOKENIZER_FAULT): 100}),
    "logprobs": failed("could not be made", logit_bias={str(LOGPROBS_FAULT): 100}, logprobs=1),
    "stop strings": failed("could not be made", stop=[STOP_FAULT]),
    "all of n": Poison(
        completion(n=3, logit_bias={str(NAN_TOKEN): 100}), 500, "not numbers", [{"error": 3}]
    ),
}
_SAYS = {"NaN": "not numbers", "infinity": "not numbers", "one NaN": "not numbers"}
_STATUS = {"nothing": 400}
for name in WRONGS:
    if name not in ("slow", "one infinity"):
        says = _SAYS.get(name, "excluded" if name == "nothing" else "logits processor failed")
        FAILED[f"processor: {name}"] = failed(
            says, status=_STATUS.get(name, 500), vllm_xargs={"poison": name}
        )
IN_STREAM = {
    f"{name}, streamed": replace(FAILED[name], body={**FAILED[name].body, "stream": True}, status=s)
    for name, s in {
        "weights, later": 200,
        "grammar fails": 200,
        "processor: raise": 200,
        "logprobs": 500,  # nothing was sent yet
        "detokenizer": 500,
    }.items()
}

COSTLY = {
    "processor: slow": served(vllm_xargs={"poison": "slow"}),
    "processor: one infinity": Poison(
        completion(vllm_xargs={"poison": "one infinity"}),
        None,
        ends=[{"length": 1}, {"error": 1}],
    ),
    "KV events": served(prompt=[*EVENT_FAULT, *range(40)]),
    "whole window": served(prompt=[5] * (WINDOW - 8)),
    "logprobs of a whole window": served(
        prompt=list(range(200)) * 2, prompt_logprobs=5, logprobs=20
    ),
    "n": served(60, n=60, temperature=1, logit_bias=BANNED),
    "stop strings": served(
        stop=["\u00e4" * 16_000 for _ in range(4)], temperature=1, logit_bias=BANNED
    ),
    "bad words": served(bad_words=["bcdef"] * 120),
    "all logprobs": served(logprobs=20, temperature=1, logit_bias=BANNED),
    "every token biased": served(logit_bias={str(i): 1e308 for i in range(200)}),
    "no token likely": served(logit_bias={str(i): -1e308 for i in range(VOCAB_SIZE)}),
    "thousands of rules, one in another": served(
        structured_outputs={
            "grammar": "".join(f"r{i}: r{i + 1}\n" for i in range(9999))
            + "start: r0\nr9999: /[a-z]{99}/"
        },
    ),
    "repeats of repeats": Poison(
        completion(structured_outputs=regex("((a{1,1000}){1,1000}){1,1000}")),
        ends=[{"stop": 1}, {"length": 1}],
    ),
}


async def leaves(port: int, data: bytes, after: Callable[[Client], Awaitable[object]]) -> None:
    client = await Client.connect(port)
    await client.send(data)
    await after(client)
    await client.leave()


async def at_once(client: Client) -> None:
    """Nothing is waited for."""


async def with_first_token(client: Client) -> None:
    await client.head()
    await client.piece()


def leaver(
    after: Callable[[Client], Awaitable[object]] = at_once,
    cut: int | None = None,
    ends: list[dict[str, int]] | None = None,
    **fields: Any,
) -> Poison:
    """Sends the first `cut` bytes of a long request and leaves."""
    body = completion(max_tokens=WINDOW - 100, stream=after is with_first_token, **fields)
    data = request_bytes(COMPLETIONS, body)[:cut]

    async def run(port: int) -> None:
        await leaves(port, data, after)

    return Poison(run, None, ends=ends or [{"abort": 1}, {}])


async def reads_nothing(port: int) -> None:
    """Asks for megabytes and leaves them in the socket until the others are through."""
    client = await Client.connect(port)
    body = completion(
        n=40, max_tokens=60, temperature=1, logprobs=20, stream=True, logit_bias=BANNED
    )
    await client.send(request_bytes(COMPLETIONS, body))
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    deadline_s = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline_s:  # the engine does not wait for it
        if (await numbers(port))["running"] == 0:
            break
    await client.leave()


async def storm(port: int) -> None:
    """A hundred clients come and leave, every second one once it has a token."""

    async def one(number: int) -> None:
        has_token = number % 2 == 0
        # who leaves late must not come to a token that is poison by itself
        faults = (NAN_TOKEN, DETOKENIZER_FAULT, LOGPROBS_FAULT, REPLY_FAULT)
        never = {str(token): -100 for token in faults}
        body = completion(max_tokens=400, stream=has_token, logit_bias=never)
        data = request_bytes(COMPLETIONS, body)
        await leaves(port, data, with_first_token if has_token else at_once)

    for begin in range(0, 100, 20):
        await asyncio.gather(*(one(number) for number in range(begin, begin + 20)))


async def same_names(port: int) -> Answer:
    """Requests of one id, at the same time; ids are the client's business."""
    body = completion(request_id="twin")
    answers = await asyncio.gather(*(ask(port, COMPLETIONS, body) for _ in range(5)))
    assert {answer.status for answer in answers} == {200}
    assert len({answer.json["choices"][0]["text"] for answer in answers}) == 1
    return answers[0]


COMPILING = {"structured_outputs": regex("compile-slow, and left")}
LEAVING = {
    "leaves within the head": leaver(cut=40, ends=[{}]),
    "leaves within the body": leaver(cut=-20, ends=[{}]),
    "leaves at once": leaver(),
    "leaves in its prefill": leaver(prompt=[5] * 100),
    "leaves with the first token": leaver(with_first_token, ends=[{"abort": 1}]),
    "leaves while its grammar compiles": leaver(**COMPILING),
    "reads nothing": Poison(reads_nothing, None, ends=[{"length": 40}, {"abort": 40}]),
    "storm": Poison(storm, None, ends=[{"abort": number} for number in range(50, 101)]),
    "one name for all": Poison(same_names, ends=[{"length": 5}]),
}
POISONS: dict[str, Poison] = {
    **{f"refused: {name}": poison for name, poison in REFUSED.items()},
    **{f"failed: {name}": poison for name, poison in FAILED.items()},
    **{f"failed: {name}": poison for name, poison in IN_STREAM.items()},
    "failed: reply": Poison(
        completion(logit_bias={str(REPLY_FAULT): 100}),
        500,
        "Internal server error",
        [{"length": 1}, {"abort": 1}],
    ),
    "failed: reply, streamed": Poison(
        completion(logit_bias={str(REPLY_FAULT): 100}, stream=True, max_tokens=500),
        500,
        "Internal server error",
        [{"abort": 1}],
    ),
    **{f"costly: {name}": poison for name, poison in COSTLY.items()},
    **{f"leaving: {name}": poison for name, poison in LEAVING.items()},
}


async def numbers(port: int) -> dict[str, float]:
    """Of the metrics: what runs, what is held, how often requests have ended for each reason."""
    page = (await ask(port, "/metrics", b"", method="GET")).body.decode()
    found = {"running": 0.0, "usage": 0.0}
    for line in page.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith(("vllm:num_requests_running{", "vllm:num_requests_waiting{")):
            found["running"] += float(value)
        elif name.startswith("vllm:kv_cache_usage_perc{"):
            found["usage"] = float(value)
        elif name.startswith("vllm:request_success_total{"):
            reason = re.search(r'finished_reason="(\w+)"', name)
            assert reason is not None
            found[reason[1]] = float(value)
    return found


async def idle_numbers(port: int) -> dict[str, float]:
    """`numbers` once nothing runs and no block is held."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            found = await numbers(port)
            if found["running"] == found["usage"] == 0:
                return found


def difference(after: dict[str, float], before: dict[str, float]) -> dict[str, int]:
    changed = {name: int(after[name] - before.get(name, 0)) for name in after}
    return {name: count for name, count in changed.items() if count}


async def in_the_crowd(crowd: Crowd, port: int, poison: Poison) -> None:
    while True:
        before = await idle_numbers(port)
        tasks = await crowd.start()
        if sum(not task.done() for task in tasks) > len(tasks) / 2:
            break
        await asyncio.gather(*tasks)  # others have kept us from the processor: once more
    await poison.run(port)
    said = await asyncio.gather(*tasks)
    assert said == crowd.alone
    assert (await ask(port, "/health", b"", method="GET")).status == 200
    ended = difference(await idle_numbers(port), before)
    for reason, count in crowd.num_ends.items():
        ended[reason] -= count
    assert {reason: count for reason, count in ended.items() if count} in poison.ends


@pytest.mark.parametrize("name", POISONS)
def test_one_bad_request_among_many_is_its_own_affair(
    server: Server, crowd: Crowd, name: str
) -> None:
    core = server.core()
    asyncio.run(in_the_crowd(crowd, server.port, POISONS[name]))
    assert server.core() == core


def test_after_all_this_no_block_is_held_and_the_cache_is_right(
    server: Server, crowd: Crowd
) -> None:
    answer = asyncio.run(ask(server.port, "/reset_prefix_cache", b""))
    assert answer.json == {"success": True}
    assert Crowd(server).alone == crowd.alone
