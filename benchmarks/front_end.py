"""What the API process costs per streamed token, in microseconds of CPU time.

A real server with a played core (`played_core.py`): HTTP, tokenising the prompt, decoding what the
core says, detokenising, JSON, and the send are all in it, compute is not. CPU time of the process
with all its threads is read from its clock, so other work on the machine disturbs little; the
minimum of the rounds counts. Each request generates `--tokens` tokens; its fixed cost is measured
with requests of one token and shown apart.

    python -m benchmarks.front_end [--concurrency 1 8 32] [--tokens 128] [--rounds 3]
        [--case completions ...] [--step-ms 10] [--profile FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.peers.load import CORPUS
from benchmarks.peers.server import free_port
from benchmarks.streams import wait_ready

LIMIT = 1 << 24  # bytes of one reply
PROMPT_CHARS = 1000
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "completions": ("/v1/completions", {"stream": True}),
    "chat": ("/v1/chat/completions", {"stream": True}),
    "completions, logprobs 5": ("/v1/completions", {"stream": True, "logprobs": 5}),
    "chat, logprobs 5": (
        "/v1/chat/completions",
        {"stream": True, "logprobs": True, "top_logprobs": 5},
    ),
    "completions, usage": (
        "/v1/completions",
        {
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        },
    ),
    "completions, whole": ("/v1/completions", {}),
    "chat, whole": ("/v1/chat/completions", {}),
}


class PlayedServer:
    """An API process whose core is played.

    Attributes:
        port: it listens on.
        pid: of the API process.
    """

    def __init__(self, port: int, process: subprocess.Popen[str]) -> None:
        self.port, self.pid = port, process.pid
        self._clock = (~process.pid << 3) | 2  # CPUCLOCK_SCHED of a process: include/linux/time.h

    def cpu_us(self) -> float:
        """CPU time of all its threads since its start."""
        return time.clock_gettime_ns(self._clock) / 1e3

    def cost_us(self, case: str, *, concurrency: int, tokens: int) -> float:
        """CPU time per token of one round: `concurrency` requests at a time, two each."""
        path, fields = CASES[case]
        bodies = [_request(path, fields, number, tokens) for number in range(2 * concurrency)]
        before_us = self.cpu_us()
        replies = asyncio.run(_all_replies(self.port, bodies, concurrency))
        cost_us = self.cpu_us() - before_us
        for reply in replies:
            if not reply.startswith(b"HTTP/1.1 200") or not _is_whole(reply, fields):
                raise SystemExit(f"{case}: {reply[:300]!r}")
        return cost_us / (tokens * len(bodies))


@contextlib.contextmanager
def played_server(step_ms: float, *, profile: str | None = None) -> Iterator[PlayedServer]:
    """Starts it; stopped at the end. `profile` takes cProfile's statistics of the main thread."""
    port = free_port()
    words = [sys.executable]
    if profile:
        words += ["-m", "cProfile", "-o", profile]
    words += ["-m", "benchmarks.played_core", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        [*words, "--disable-uvicorn-access-log", "--max-num-seqs", "256"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE if not profile else None,
        text=True,
        env={**os.environ, "PLAYED_STEP_MS": str(step_ms)},
    )
    try:
        wait_ready(port, process)
        yield PlayedServer(port, process)
    finally:
        process.terminate()
        process.communicate()


def _request(path: str, fields: dict[str, Any], number: int, tokens: int) -> bytes:
    at = 1000 + 317 * number % (len(CORPUS) - 2 * PROMPT_CHARS)
    prompt = CORPUS[at : at + PROMPT_CHARS]
    is_chat = "chat" in path
    asked = {"messages": [{"role": "user", "content": prompt}]} if is_chat else {"prompt": prompt}
    body = {"max_tokens": tokens, "temperature": 0, "ignore_eos": True, **asked, **fields}
    data = json.dumps(body).encode()
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    ).encode() + data


async def _all_replies(port: int, requests: list[bytes], concurrency: int) -> list[bytes]:
    gate = asyncio.Semaphore(concurrency)

    async def one(request: bytes) -> bytes:
        async with gate:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=LIMIT)
            writer.write(request)
            reply = await reader.read(-1)
            writer.close()
            return reply

    return await asyncio.gather(*map(one, requests))


def _is_whole(reply: bytes, fields: dict[str, Any]) -> bool:
    return b"data: [DONE]" in reply if fields.get("stream") else b'"usage"' in reply


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--profile", help="file for cProfile's statistics (falsifies the figures)")
    args = parser.parse_args()
    with played_server(args.step_ms, profile=args.profile) as server:
        print("us of CPU per token" + "".join(f"{f'c={c}':>10}" for c in args.concurrency))
        for case in args.case:
            server.cost_us(case, concurrency=max(args.concurrency), tokens=8)  # warm
            costs = [
                min(
                    server.cost_us(case, concurrency=concurrency, tokens=args.tokens)
                    for _ in range(args.rounds)
                )
                for concurrency in args.concurrency
            ]
            one = server.cost_us(case, concurrency=max(args.concurrency), tokens=1)
            shown = "".join(f"{cost:10.1f}" for cost in costs)
            print(f"{case:<26}{shown}   a request of one token: {one:.0f}", flush=True)


if __name__ == "__main__":
    main()
