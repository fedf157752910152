"""A core at the other end of the front end's client, played by the test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from octavo.errors import EngineDead
from octavo.messages.engine import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    FinishReason,
    Ready,
)

READY = Ready(
    engine_index=0,
    max_model_len=64,
    num_blocks=65,
    block_size=16,
    kv_cache_size_tokens=1024,
    max_num_batched_tokens=512,
    max_num_seqs=32,
    dtype="float32",
)


class FakeCoreClient:
    """Records what the front end sends; says what the test tells it to say."""

    def __init__(self) -> None:
        self.added: list[EngineCoreRequest] = []
        self.aborted: list[str] = []
        self.calls: list[tuple[str, tuple[object, ...]]] = []
        self.is_started = False
        self.is_closed = False
        self.shutdown_timeout_s: float | None = None
        self._queue: asyncio.Queue[EngineCoreOutputs | EngineDead] = asyncio.Queue()

    # the front end's side

    def start(self) -> None:
        self.is_started = True

    def add_requests(self, requests: Sequence[EngineCoreRequest]) -> None:
        self.added += requests

    def abort_requests(self, request_ids: list[str]) -> None:
        self.aborted += request_ids

    async def receive(self) -> list[EngineCoreOutputs]:
        item = await self._queue.get()
        if isinstance(item, EngineDead):
            raise item
        return [item]

    async def call(self, method: str, *args: object) -> object:
        self.calls.append((method, args))
        return True

    async def shutdown(self, timeout_s: float) -> bool:
        self.shutdown_timeout_s = timeout_s
        return True

    def close(self) -> None:
        self.is_closed = True

    # the test's side

    def is_silent(self) -> bool:
        """True once everything said was heard."""
        return self._queue.empty()

    def say(self, *outputs: EngineCoreOutput) -> None:
        self._queue.put_nowait(
            EngineCoreOutputs(outputs=list(outputs), timestamp_s=time.monotonic())
        )

    def say_tokens(
        self, request_id: str, token_ids: Sequence[int], finish: FinishReason | None = None
    ) -> None:
        self.say(EngineCoreOutput(request_id, list(token_ids), finish))

    def die(self, reason: str) -> None:
        self._queue.put_nowait(EngineDead(reason))
