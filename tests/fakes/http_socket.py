"""HTTP/1.1 over real sockets inside an event loop, one connection at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from dataclasses import dataclass
from typing import Any, Self


@dataclass
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """A client's connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, address: tuple[str, int] | str, tls: ssl.SSLContext | None = None) -> Self:
        if isinstance(address, str):
            return cls(*await asyncio.open_unix_connection(address))
        return cls(*await asyncio.open_connection(*address, ssl=tls))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await self.writer.wait_closed()

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> None:
        """Sends a request."""
        data = b"" if body is None else json.dumps(body).encode()
        names = {"Host": "x", **headers}
        if body is not None:
            names |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
        head = "".join(f"{k}: {v}\r\n" for k, v in names.items())
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + data)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        """Reads status and headers."""
        async with asyncio.timeout(10):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), headers

    async def response(self) -> Response:
        """Reads a complete response."""
        status, headers = await self.head()
        async with asyncio.timeout(10):
            if "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            else:
                body = b"".join([chunk async for chunk in self.chunks()])
        return Response(status, headers, body)

    async def chunks(self) -> Any:
        """Chunks of a chunked body, as they come."""
        while True:
            async with asyncio.timeout(10):
                size = int(await self.reader.readuntil(b"\r\n"), 16)
                data = (await self.reader.readexactly(size + 2))[:-2]
            if not size:
                return
            yield data

    async def request(self, method: str, path: str, body: Any = None, **headers: str) -> Response:
        """One exchange."""
        await self.send(method, path, body, **headers)
        return await self.response()
