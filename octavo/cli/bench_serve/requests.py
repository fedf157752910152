"""What is sent and what comes back: a sample, its request body, and the reading of its stream.

TTFT, inter-token latencies and the end of a request are vLLM's: every event with a choice is a
token, the first one is the first token, and the last one is the end.

Runs in: the event loop of the benchmark. Knows nothing of: sockets, how results are summed up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from octavo.cli.bench_serve.http_pool import HttpPool, reason_of
from octavo.wording import printable

_MAX_ERROR_SHOWN = 300


class Sample(msgspec.Struct):
    """One prompt of a data set."""

    prompt: str
    prompt_len: int
    output_len: int
    request_id: str = ""


class Result(msgspec.Struct):
    """What one request gave; times in seconds of `time.perf_counter()`."""

    prompt_len: int
    generated_text: str = ""
    success: bool = False
    latency: float = 0.0
    output_tokens: int = 0  # as the server says; 0: it does not
    ttft: float = 0.0
    itl: list[float] = []
    error: str = ""
    start_time: float = 0.0
    queue_time: float = 0.0  # waiting for --max-concurrency


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


Body = dict[str, Any]


def completion_body(sample: Sample, model: str, logprobs: int | None) -> Body:
    """The request of the backend `openai`."""
    body: Body = {
        "model": model,
        "prompt": sample.prompt,
        "repetition_penalty": 1.0,
        "max_tokens": sample.output_len,
    }
    if logprobs is not None:
        body["logprobs"] = logprobs
    return body


def chat_body(sample: Sample, model: str, logprobs: int | None) -> Body:
    """The request of the backend `openai-chat`."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": sample.prompt}],
        "max_completion_tokens": sample.output_len,
    }


BODIES: dict[str, Callable[[Sample, str, int | None], Body]] = {
    "openai": completion_body,
    "vllm": completion_body,
    "openai-chat": chat_body,
}


class AnswerReader:
    """Adds the pieces of one streamed answer to a result.

    Args:
        result: its `start_time` is set.
    """

    def __init__(self, result: Result) -> None:
        self._result = result
        self._decode = msgspec.json.Decoder(_Event).decode
        self._rest = b""
        self._last_s = result.start_time
        self._has_token = False
        self._texts: list[str] = []
        self.raw = bytearray()  # what is no event: the body of a refusal

    def feed(self, piece: bytes, now_s: float) -> None:
        """Takes a piece of the body and the time it came."""
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if line.startswith(b"data:"):
                self._take(line[5:].strip(), now_s)
            elif len(self.raw) < _MAX_ERROR_SHOWN:
                self.raw += line

    def finish(self, status: int, reason: str) -> None:
        """The answer has ended: fills in the rest of the result."""
        result = self._result
        if status != 200:
            self.raw += self._rest
            result.error = f"{status} {reason}: {_words(bytes(self.raw))}"
        elif not result.error:
            if self._has_token:
                result.success = True
            else:
                result.error = "the stream ended without a token"
        result.generated_text = "".join(self._texts)
        result.latency = self._last_s - result.start_time

    def _take(self, data: bytes, now_s: float) -> None:
        if data == b"[DONE]":
            return
        try:
            event = self._decode(data)
        except msgspec.MsgspecError as error:
            self._result.error = f"an event that cannot be read: {error}"
            return
        if event.error is not None:
            self._result.error = f"the stream ended with an error: {_message(event.error)}"
        elif event.choices:
            if self._has_token:
                self._result.itl.append(now_s - self._last_s)
            else:
                self._has_token = True
                self._result.ttft = now_s - self._result.start_time
            self._last_s = now_s
            choice = event.choices[0]
            text = choice.text if choice.delta is None else choice.delta.content
            if text:
                self._texts.append(text)
        elif event.usage is not None:
            self._result.output_tokens = event.usage.completion_tokens or 0
            if event.usage.prompt_tokens is not None:
                self._result.prompt_len = event.usage.prompt_tokens


class Caller:
    """Sends samples to one endpoint.

    Args:
        pool: of the server.
        path: the endpoint.
        body: makes a request of (sample, model, logprobs).
        fields: more fields of each request; they win.
        headers: more headers of each request.
    """

    def __init__(
        self,
        pool: HttpPool,
        path: str,
        body: Callable[[Sample, str, int | None], Body],
        *,
        logprobs: int | None = None,
        fields: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._pool = pool
        self._path = path
        self._body = body
        self._logprobs = logprobs
        self._fields = {
            "stream": True,
            "stream_options": {"include_usage": True},
            **(fields or {}),
        }
        self._headers = {"Content-Type": "application/json", **(headers or {})}

    async def send(self, sample: Sample, model: str) -> Result:
        """Sends a sample and waits for the end of its answer; failures are in the result."""
        body = {**self._body(sample, model, self._logprobs), **self._fields}
        data = msgspec.json.encode(body)
        headers = dict(self._headers)
        if sample.request_id:
            headers["x-request-id"] = sample.request_id
        result = Result(prompt_len=sample.prompt_len, start_time=time.perf_counter())
        reader = AnswerReader(result)
        try:
            answered = await self._pool.exchange("POST", self._path, headers, data, reader.feed)
        except OSError as error:
            result.error = reason_of(error)
        else:
            reader.finish(answered.status, answered.reason)
        return result


async def wait_ready(caller: Caller, sample: Sample, model: str, timeout_s: float) -> Result:
    """Sends the sample again and again until it is answered, at most for `timeout_s`."""
    deadline_s = time.perf_counter() + timeout_s
    while True:
        result = await caller.send(sample, model)
        left_s = deadline_s - time.perf_counter()
        if result.success or left_s <= 0:
            return result
        await asyncio.sleep(min(_RETRY_S, left_s))


_RETRY_S = 0.5


def _words(body: bytes) -> str:
    try:
        return _message(msgspec.json.decode(body))
    except msgspec.MsgspecError:
        return printable(body.decode(errors="replace"), _MAX_ERROR_SHOWN) or "no reason given"


def _message(answer: Any) -> str:
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    text = error.get("message", error) if isinstance(error, dict) else error
    return printable(str(text), _MAX_ERROR_SHOWN)
