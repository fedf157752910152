"""A server to measure, and streams of it with the time of each token.

Used by the other programs of this folder; needs nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any


@contextlib.contextmanager
def server(*flags: str) -> Iterator[int]:
    """`octavo serve` with these flags on a free port, which it gives; stopped at the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    command = [sys.executable, "-m", "octavo", "serve", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        [*command, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_ready(port, process)
        yield port
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate()


def wait_ready(port: int, process: subprocess.Popen[str], limit_s: float = 60.0) -> None:
    """Returns when the server answers completions.

    Raises:
        SystemExit: it ended, or takes too long.
    """
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"the server ended: {process.communicate()[1]}")
        with contextlib.suppress(OSError, urllib.error.URLError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        time.sleep(0.05)
    raise SystemExit(f"the server is not ready after {limit_s:.0f} s")


@dataclass
class Stream:
    """One streamed completion: when it was sent and when its pieces came (`time.monotonic()`)."""

    sent_s: float = 0.0
    piece_s: list[float] = field(default_factory=list)

    @property
    def ttft_s(self) -> float:
        """Time to the first piece."""
        return self.piece_s[0] - self.sent_s

    def gaps_s(self, since_s: float = 0.0, until_s: float = float("inf")) -> list[float]:
        """Times between pieces, of those gaps that touch the interval."""
        return [
            b - a
            for a, b in zip(self.piece_s, self.piece_s[1:], strict=False)
            if b >= since_s and a <= until_s
        ]


async def complete(port: int, body: dict[str, Any]) -> AsyncIterator[Stream]:
    """A streamed completion that begins when it is iterated; gives itself after each piece.

    Raises:
        SystemExit: the server refused it.
    """
    data = json.dumps({"stream": True, "temperature": 0, "ignore_eos": True, **body}).encode()
    stream = Stream(sent_s=time.monotonic())
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    try:
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data)
        )
        status = await reader.readline()
        if b" 200 " not in status:
            raise SystemExit(f"{status!r} {await reader.read()!r}")
        async for line in reader:
            if line.startswith(b"data: {"):
                stream.piece_s.append(time.monotonic())
                yield stream
    finally:
        writer.close()


async def finished(port: int, body: dict[str, Any]) -> Stream:
    """The same, when it has ended."""
    return [stream async for stream in complete(port, body)][-1]
