"""Many concurrent streams against a running server, some of which leave, and what must hold then.

Used by `test_soak.py` in a short form; the long one is

    python -m tests.integration.soak --rounds 50 --streams 200 --max-tokens 200

It starts a server with the default model, prints one line per round, and fails like the test does.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import socket
import struct
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.integration.server import Server, serving

#: a pool that many streams do not fit in, small enough to be touched whole in one round
SERVER_ARGS = ("--num-gpu-blocks-override", "200", "--max-model-len", "512")
#: rounds that warm up the pool of blocks, caches and the allocator
WARM_UP_ROUNDS = 2
#: of all processes after that
MAX_GROWTH_BYTES = 20_000_000
PATHS = ("/v1/completions", "/v1/chat/completions")
#: at which point a client leaves, and how
ENDS = ("stays",) * 6 + ("before the answer", "in the middle", "reset in the middle", "half-closes")


@dataclass
class Outcome:
    """What one client saw."""

    end: str
    events: list[str] = field(default_factory=list)

    def check(self, n: int) -> None:
        """A client that stayed has one finish reason per choice and one `[DONE]`, at the end."""
        assert self.events.count("[DONE]") == 1, self.events[-3:]
        assert self.events[-1] == "[DONE]"
        reasons: Counter[int] = Counter()
        for event in self.events[:-1]:
            chunk = json.loads(event)
            assert "error" not in chunk, chunk
            for choice in chunk["choices"]:
                assert not reasons[choice["index"]], "text after the end of a choice"
                reasons[choice["index"]] += choice["finish_reason"] is not None
        assert reasons == Counter(range(n))


async def stream(port: int, path: str, body: dict[str, Any], end: str, stay: int) -> Outcome:
    """One client: sends the request and leaves as `end` says, after more than `stay` events."""
    data = json.dumps({**body, "stream": True}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    outcome = Outcome(end)
    try:
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode()
            + data
        )
        if end == "before the answer":
            await writer.drain()
            return outcome
        assert (await reader.readline()).split()[1] == b"200"
        async for line in reader:
            if not line.startswith(b"data: "):
                continue
            outcome.events.append(line[6:].decode().strip())
            if end != "stays" and len(outcome.events) > stay:
                if end == "half-closes":
                    writer.write_eof()
                elif end == "reset in the middle":
                    reset = struct.pack("ii", 1, 0)
                    raw: socket.socket = writer.get_extra_info("socket")
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                return outcome
        return outcome
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def round_of(port: int, rng: random.Random, streams: int, max_tokens: int) -> Counter[str]:
    """`streams` concurrent clients; those that stay are checked. Gives how many ended how."""

    async def client() -> str:
        path, end, n = rng.choice(PATHS), rng.choice(ENDS), rng.choice((1, 1, 1, 2, 3))
        text = " ".join(rng.choices(["sun", "moon", "sea", "red", "two"], k=rng.randint(1, 6)))
        asked = {"messages": [{"role": "user", "content": text}]}
        body = {"prompt": text} if path == PATHS[0] else asked
        limits = {"n": n, "max_tokens": rng.randint(1, max_tokens), "temperature": rng.random()}
        outcome = await stream(port, path, {**body, **limits}, end, rng.randint(0, 5))
        if end == "stays":
            outcome.check(n)
        return end

    return Counter(await asyncio.gather(*(client() for _ in range(streams))))


async def storm(port: int, count: int, concurrency: int = 50) -> None:
    """`count` clients that send a request and leave at once."""
    gate = asyncio.Semaphore(concurrency)

    async def client(index: int) -> None:
        async with gate:
            body = {"prompt": f"Number {index}", "max_tokens": 400, "ignore_eos": True}
            await stream(port, PATHS[0], body, "before the answer", 0)

    await asyncio.gather(*(client(index) for index in range(count)))


@dataclass(frozen=True)
class Footprint:
    """What a server holds between rounds."""

    num_files: int
    anonymous_bytes: int  # RssAnon of all its processes

    @classmethod
    def of(cls, server: Server) -> Footprint:
        processes = [psutil.Process(server.pid), *server.children()]
        anonymous = 0
        for process in processes:
            status = Path(f"/proc/{process.pid}/status").read_text()
            (line,) = [line for line in status.splitlines() if line.startswith("RssAnon:")]
            anonymous += int(line.split()[1]) * 1024
        return cls(sum(process.num_fds() for process in processes), anonymous)


def wait_idle(server: Server, limit_s: float = 10.0) -> None:
    """Waits until no request is left and no block is in use."""
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    deadline_s = time.monotonic() + limit_s
    while any(values := {name: server.metric(name) for name in names}.values()):
        assert time.monotonic() < deadline_s, list(values)
        server.pause(0.05)


def wait_files(server: Server, most: int, limit_s: float = 5.0) -> None:
    """Waits until the server has no more than `most` files open: closing takes a moment."""
    deadline_s = time.monotonic() + limit_s
    while (found := Footprint.of(server).num_files) > most:
        assert time.monotonic() < deadline_s, f"{found} files are open, {most} were before"
        server.pause(0.05)


def idle_cpu_share(server: Server, seconds: float) -> float:
    """Share of one core that all processes of the server use while nobody asks anything."""
    processes = [psutil.Process(server.pid), *server.children()]

    def used_s() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    before_s, start_s = used_s(), time.monotonic()
    server.pause(seconds)
    return (used_s() - before_s) / (time.monotonic() - start_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder) / "log", *SERVER_ARGS) as server,
    ):
        num_files = Footprint.of(server).num_files
        warm: Footprint | None = None
        for number in range(args.rounds):
            start_s = time.monotonic()
            ends = asyncio.run(round_of(server.port, rng, args.streams, args.max_tokens))
            asyncio.run(storm(server.port, 1000))
            wait_idle(server)
            now = Footprint.of(server)
            wait_files(server, num_files)
            if number == WARM_UP_ROUNDS:
                warm = now
            print(
                f"round {number}: {time.monotonic() - start_s:.1f} s, {dict(ends)}, "
                f"{now.num_files} files, {now.anonymous_bytes / 1e6:.1f} MB anonymous",
                flush=True,
            )
        share = idle_cpu_share(server, 10)
        print(f"idle: {share:.2%} of a core")
        assert share < 0.01
        assert "Traceback" not in server.log
        if warm is not None:
            assert now.anonymous_bytes - warm.anonymous_bytes < MAX_GROWTH_BYTES


if __name__ == "__main__":
    main()
