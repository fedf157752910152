"""The `/metrics` page alone, for a process that serves nothing else.

Runs in: API process, event loop. Owns: nothing. Knows nothing of: what the page says.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

_MAX_HEAD = 16 * 1024
_TIMEOUT_S = 10.0


async def serve_metrics(
    render: Callable[[str], tuple[bytes, str]], listener: socket.socket
) -> asyncio.Server:
    """Answers every request on the listener with the page, until the server is closed.

    Args:
        render: page and content type for an `Accept` header.
        listener: bound; closed with the server.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                page, content_type = render(_accept(head))
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n"
                    b"Connection: close\r\n\r\n" % (content_type.encode(), len(page))
                )
                if not head.startswith(b"HEAD "):
                    writer.write(page)
                await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, sock=listener, limit=_MAX_HEAD)


def _accept(head: bytes) -> str:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"accept":
            return value.strip().decode("latin-1")
    return ""
