"""A bounded load on an OpenAI-compatible server on this machine; prints one line of JSON.

Standard library only, one thread on epoll, and nothing is parsed before the last reply is there, so
that the client takes as little of the machine as it can. Prompts are cuts of Python's own manual,
chosen by the seed.

    python -m benchmarks.peers.load --port 8000 -n 64 -c 32 --out 128

Of each request it notes the time to the first token, the gaps between tokens and the usage that the
server reports; a server that sends several tokens in one piece is seen by `chunks_per_token`.
"""

from __future__ import annotations

import argparse
import json
import random
import select
import socket
import statistics
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from pydoc_data.topics import topics
from typing import Any

CORPUS = "\n".join(topics[name] for name in sorted(topics))
REQUEST_LIMIT_S = 600.0
LAST_PIECE = b"data: [DONE]"


@dataclass(frozen=True)
class Load:
    """What is sent.

    Attributes:
        n: requests in all.
        concurrency: requests at a time.
        out: tokens that each generates, end of sequence or not.
        prompt_chars: characters of each request's own part of the prompt.
        shared_chars: characters before it that are the same for all.
        rate: requests per second, exponential gaps; 0: as fast as `concurrency` lets.
        extra: fields added to each body.
    """

    n: int = 16
    concurrency: int = 1
    out: int = 64
    prompt_chars: int = 1000
    shared_chars: int = 0
    temperature: float = 0.0
    rate: float = 0.0
    seed: int = 0
    model: str = "m"
    path: str = "/v1/completions"
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class Sample:
    """One request as the client saw it; times in seconds.

    `pieces` are what was read and when; `read_reply` makes the rest of them.
    """

    sent_s: float = 0.0
    end_s: float = 0.0
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    status: str = ""
    ttft_s: float | None = None
    arrivals_s: list[float] = field(default_factory=list)  # of pieces with text
    prompt_tokens: int = 0
    output_tokens: int = 0

    @property
    def tpot_s(self) -> float | None:
        """Seconds per token after the first."""
        if len(self.arrivals_s) < 2 or self.output_tokens < 2:
            return None
        return (self.arrivals_s[-1] - self.arrivals_s[0]) / (self.output_tokens - 1)


def run(load: Load, port: int) -> dict[str, Any]:
    """Applies a load; gives its figures (rates per second, times in milliseconds)."""
    rng = random.Random(load.seed)
    shared = shared_prefix(load)
    waiting = deque(_request(load, shared + cut(rng, load.prompt_chars)) for _ in range(load.n))
    due_s = 0.0  # of the first that waits
    samples: list[Sample] = []
    client = _Client(port)
    start_s = time.perf_counter()
    while waiting or client.num_open:
        until_s: float | None = None
        while waiting and client.num_open < load.concurrency and until_s is None:
            early_s = start_s + due_s - time.perf_counter()
            if early_s > 0:
                until_s = early_s
            else:
                samples.append(client.send(waiting.popleft()))
                due_s += rng.expovariate(load.rate) if load.rate else 0.0
        if client.num_open or until_s is not None:  # else all that was sent has failed
            client.receive(until_s)
    seconds = time.perf_counter() - start_s
    for sample in samples:
        read_reply(sample)
    return _figures(load, samples, seconds)


def shared_prefix(load: Load) -> str:
    """What all prompts begin with."""
    return CORPUS[: load.shared_chars]


def cut(rng: random.Random, length: int) -> str:
    """A random cut of the corpus."""
    at = rng.randrange(len(CORPUS) - length)
    return CORPUS[at : at + length]


def _request(load: Load, prompt: str) -> bytes:
    is_chat = load.path.endswith("chat/completions")
    asked = {"messages": [{"role": "user", "content": prompt}]} if is_chat else {"prompt": prompt}
    body = {
        "model": load.model,
        "max_tokens": load.out,
        "temperature": load.temperature,
        "stream": True,
        "ignore_eos": True,
        "stream_options": {"include_usage": True},
        **asked,
        **load.extra,
    }
    data = json.dumps(body).encode()
    head = (
        f"POST {load.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer x\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


class _Client:
    """Connections of one request each."""

    def __init__(self, port: int) -> None:
        self._address = ("127.0.0.1", port)
        self._epoll = select.epoll()
        self._open: dict[int, tuple[socket.socket, Sample]] = {}
        self._buffer = bytearray(1 << 16)

    @property
    def num_open(self) -> int:
        """Replies that are not whole."""
        return len(self._open)

    def send(self, request: bytes) -> Sample:
        """Its sample, which `receive` fills."""
        sample = Sample(sent_s=time.perf_counter())
        connection = socket.socket()
        connection.settimeout(REQUEST_LIMIT_S)
        try:
            connection.connect(self._address)
            connection.sendall(request)
        except OSError as error:
            connection.close()
            sample.status = repr(error)
            sample.end_s = time.perf_counter()
            return sample
        connection.setblocking(False)
        self._epoll.register(connection.fileno(), select.EPOLLIN)
        self._open[connection.fileno()] = connection, sample
        return sample

    def receive(self, limit_s: float | None) -> None:
        """Takes what has arrived; waits for something, so many seconds at most."""
        arrived = self._epoll.poll(REQUEST_LIMIT_S if limit_s is None else limit_s)
        now_s = time.perf_counter()
        for number, _ in arrived:
            connection, sample = self._open[number]
            try:
                size = connection.recv_into(self._buffer)
            except OSError as error:
                sample.status = repr(error)
                size = 0
            now_s = time.perf_counter()
            piece = bytes(self._buffer[:size])
            sample.pieces.append((now_s, piece))
            if not size or LAST_PIECE in piece:
                self._close(number, now_s)
        if self._open:
            oldest, (_, sample) = next(iter(self._open.items()))
            if now_s - sample.sent_s > REQUEST_LIMIT_S:
                sample.status = f"no end within {REQUEST_LIMIT_S:.0f} s"
                self._close(oldest, now_s)

    def _close(self, number: int, now_s: float) -> None:
        connection, sample = self._open.pop(number)
        sample.end_s = now_s
        self._epoll.unregister(number)
        connection.close()


def read_reply(sample: Sample) -> None:
    """Makes a sample's figures of its pieces. A line counts when its end has arrived."""
    if sample.status:
        return
    rest = b""
    for arrived_s, piece in sample.pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if not sample.status:
                sample.status = line.split()[1].decode()
            text = line[6:].strip()
            if sample.status == "200" and line.startswith(b"data: ") and text != b"[DONE]":
                _take(json.loads(text), arrived_s, sample)


def _take(piece: dict[str, Any], now: float, sample: Sample) -> None:
    if usage := piece.get("usage"):
        sample.prompt_tokens = usage["prompt_tokens"]
        sample.output_tokens = usage["completion_tokens"]
    for choice in piece.get("choices") or ():
        if choice.get("text") or (choice.get("delta") or {}).get("content"):
            if sample.ttft_s is None:
                sample.ttft_s = now - sample.sent_s
            sample.arrivals_s.append(now)


def _figures(load: Load, samples: list[Sample], seconds: float) -> dict[str, Any]:
    good = [sample for sample in samples if sample.status == "200"]
    out = sum(sample.output_tokens or len(sample.arrivals_s) for sample in good)
    prompt = sum(sample.prompt_tokens for sample in good)
    ttft = [sample.ttft_s for sample in good if sample.ttft_s is not None]
    tpot = [sample.tpot_s for sample in good if sample.tpot_s is not None]
    gaps = [b - a for s in good for a, b in zip(s.arrivals_s, s.arrivals_s[1:], strict=False)]
    return {
        "n": load.n,
        "concurrency": load.concurrency,
        "ok": len(good),
        "bad": sorted({sample.status for sample in samples if sample.status != "200"})[:3],
        "prompt_tokens": round(prompt / max(len(good), 1)),
        "output_tokens": out,
        "chunks_per_token": round(sum(len(s.arrivals_s) for s in good) / max(out, 1), 2),
        "seconds": round(seconds, 3),
        "out_tps": round(out / seconds, 1),
        "total_tps": round((out + prompt) / seconds, 1),
        "ttft_p50_ms": _quantile_ms(ttft, 50),
        "ttft_p99_ms": _quantile_ms(ttft, 99),
        "tpot_p50_ms": _quantile_ms(tpot, 50),
        "tpot_p99_ms": _quantile_ms(tpot, 99),
        "gap_p99_ms": _quantile_ms(gaps, 99),
        "gap_max_ms": _quantile_ms(gaps, 100),
        "e2e_p50_ms": _quantile_ms([s.end_s - s.sent_s for s in good], 50),
    }


def _quantile_ms(seconds: list[float], percent: int) -> float | None:
    if not seconds:
        return None
    if percent == 50:
        return round(1000 * statistics.median(seconds), 2)
    ordered = sorted(seconds)
    return round(1000 * ordered[min(len(ordered) - 1, len(ordered) * percent // 100)], 2)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("-n", type=int, default=16, help="requests")
    parser.add_argument("-c", "--concurrency", type=int, default=1)
    parser.add_argument("--out", type=int, default=64, help="tokens that each request generates")
    parser.add_argument("--prompt-chars", type=int, default=1000)
    parser.add_argument("--shared-chars", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--rate", type=float, default=0.0, help="requests per second")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="m")
    parser.add_argument("--path", default="/v1/completions")
    parser.add_argument("--extra", type=json.loads, default={}, help="JSON of more fields")
    options = vars(parser.parse_args())
    port = options.pop("port")
    load = Load(**options)
    print(json.dumps({**asdict(load), **run(load, port)}))


if __name__ == "__main__":
    main()
