"""Thirty-one requests that run together, of every kind, and what each of them says alone.

A test lets somebody do something bad among them and asks whether anybody was told anything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.integration.server import Server

SIZE = 31
COMPLETIONS = "/v1/completions"
#: tokens that only the bad ones may have
BANNED = {str(token_id): -100 for token_id in range(200, 206)}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]{20,40}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
KINDS: list[dict[str, Any]] = [
    {},
    {"temperature": 1, "logprobs": 3},
    {"structured_outputs": {"regex": "[a-z ]{200}"}},
    {"temperature": 1.5, "top_p": 0.9, "top_k": 50, "min_p": 0.01},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": PERSON}}},
    {"stop": ["zz", "qq"], "temperature": 1},
    {"n": 2, "temperature": 1, "logprobs": 0},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.5},
    {"vllm_xargs": {"poison": "harmless"}, "logprobs": 1},
    {"allowed_token_ids": list(range(60, 90)), "bad_words": ["a"]},
    {"echo": True, "logprobs": 2},
]


@dataclass
class Answer:
    """A response, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[str]:
        lines = self.body.decode().splitlines()
        return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]


class Client:
    """One connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 24))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the answer."""
        status, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        return int(status.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}

    async def body(self, headers: dict[str, str]) -> bytes:
        """The rest, if `headers` are those of the answer."""
        if "content-length" in headers:
            return await self.reader.readexactly(int(headers["content-length"]))
        # no JSON has a line end of this kind in it
        chunks = await self.reader.readuntil(b"\r\n0\r\n\r\n")
        return b"".join(chunks.split(b"\r\n")[1::2])

    async def piece(self) -> bytes:
        """The next piece of a chunked body."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def leave(self) -> None:
        """Closes at once."""
        self.writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def request_bytes(path: str, body: Any, *, method: str = "POST", headers: str = "") -> bytes:
    """One request, complete; `body` is JSON or bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}"
        f"Content-Length: {len(data)}\r\n\r\n"
    ).encode() + data


async def ask(port: int, path: str, body: Any, **options: Any) -> Answer:
    """A request and its whole answer."""
    return await talk(port, request_bytes(path, body, **options))


async def talk(port: int, data: bytes) -> Answer:
    """Any bytes and the answer to them."""
    client = await Client.connect(port)
    try:
        await client.send(data)
        status, headers = await client.head()
        return Answer(status, headers, await client.body(headers))
    finally:
        await client.leave()


def wish(number: int) -> dict[str, Any]:
    """The request of one of the crowd. Every second one streams."""
    rng = random.Random(number)
    return {
        "prompt": rng.choices(range(200), k=rng.randint(4, 40)),
        "max_tokens": 40,
        "temperature": 0,
        "seed": number,
        "ignore_eos": True,
        "logit_bias": BANNED,
        "return_token_ids": True,
        "stream": number % 2 == 0,  # as `start` knows
        **KINDS[number % len(KINDS)],
    }


def joined(parts: Sequence[Any]) -> dict[int, Any]:
    """What each choice said in all, from the choices of a whole reply or of a stream's events."""
    said: dict[int, Any] = {}
    for part in parts:
        choice = said.setdefault(
            part["index"], {"text": "", "token_ids": [], "logprobs": [], "end": None}
        )
        choice["text"] += part["text"]
        choice["token_ids"] += part.get("token_ids") or []
        if part.get("logprobs") is not None:
            names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
            choice["logprobs"] += zip(*(part["logprobs"][name] for name in names), strict=True)
        if part["finish_reason"] is not None:
            choice["end"] = (part["finish_reason"], part["stop_reason"])
    return said


@dataclass
class Member:
    """One of the crowd, running."""

    number: int
    has_begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, port: int) -> dict[int, Any]:
        """What it was told."""
        client = await Client.connect(port)
        body = wish(self.number)
        await client.send(request_bytes(COMPLETIONS, body))
        status, headers = await client.head()
        assert status == 200, await client.body(headers)
        self.has_begun.set()
        answer = Answer(status, headers, await client.body(headers))
        await client.leave()
        if not body["stream"]:
            return joined(answer.json["choices"])
        *events, last = answer.events
        assert last == "[DONE]"
        return joined([choice for event in events for choice in json.loads(event)["choices"]])


class Crowd:
    """The thirty-one on a server.

    Attributes:
        alone: what each says when nobody else is there.
    """

    def __init__(self, server: Server) -> None:
        self._port = server.port
        self.alone = [asyncio.run(Member(number).run(server.port)) for number in range(SIZE)]

    async def start(self) -> list[asyncio.Task[dict[int, Any]]]:
        """Starts them all; returns when those that stream have their first tokens."""
        members = [Member(number) for number in range(SIZE)]
        tasks = [asyncio.create_task(member.run(self._port)) for member in members]
        begun = [member.has_begun.wait() for member in members[::2]]
        async with asyncio.timeout(30):
            await asyncio.gather(*begun)
        return tasks

    @property
    def num_ends(self) -> dict[str, int]:
        """How often the crowd ends for each reason."""
        ends: dict[str, int] = {}
        for said in self.alone:
            for choice in said.values():
                ends[choice["end"][0]] = ends.get(choice["end"][0], 0) + 1
        return ends
