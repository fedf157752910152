"""`ZmqCoreClient`: the way to a core in another process, on the event loop.

Neighbours: `octavo/frontend/async_llm.py` (user), `octavo/frontend/core_manager.py` (starts the
core), `octavo/core/engine_core_proc.py` (the other end). Runs in: API process, event loop thread.
Owns: the channel once the core is ready; calls that wait for their answer.
Knows nothing of: text, HTTP, scheduling.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from octavo.errors import EngineDead, EngineError
from octavo.frontend.core_manager import LAST_WORDS_S, CoreEngineProcManager
from octavo.messages.codec import BadMessage, FromCoreDecoder, MessageEncoder
from octavo.messages.engine import (
    EngineCoreOutputs,
    EngineCoreRequest,
    RequestKind,
    Shutdown,
    UtilityCall,
    UtilityResult,
)
from octavo.transport.zmq_socket import AsyncZmqChannel

logger = logging.getLogger(__name__)


class ZmqCoreClient:
    """Sends requests to the core, hands out what it says, notices its end.

    Args:
        manager: of the core's process; it must be ready when `start` is called.
    """

    def __init__(self, manager: CoreEngineProcManager) -> None:
        self._manager = manager
        self._encoder = MessageEncoder()
        self._decoder = FromCoreDecoder()
        self._channel: AsyncZmqChannel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._received: list[EngineCoreOutputs] = []
        self._waiter: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[None] | None = None  # the process has ended
        self._dead_reason: str | None = None
        self._is_stopping = False
        self._calls: dict[int, asyncio.Future[object]] = {}
        self._last_call_id = 0

    def start(self) -> None:
        """Takes the channel over; needs a running event loop."""
        loop = self._loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        self._channel = AsyncZmqChannel(self._manager.take_channel(), loop, self._take_frames)
        loop.add_reader(self._manager.child.fileno(), self._notice_end)

    def add_requests(self, requests: Sequence[EngineCoreRequest]) -> None:
        """Sends requests, in order."""
        for request in requests:
            self._send(RequestKind.ADD, request)

    def abort_requests(self, request_ids: list[str]) -> None:
        """Asks the core to forget requests; unknown ids do no harm."""
        self._send(RequestKind.ABORT, request_ids)

    async def receive(self) -> list[EngineCoreOutputs]:
        """Waits for the core's next words, at least one message.

        Raises:
            EngineDead: the core has ended; the message says why.
        """
        while not self._received:
            if self._dead_reason is not None:
                raise EngineDead(self._dead_reason)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        received, self._received = self._received, []
        return received

    async def call(self, method: str, *args: object) -> object:
        """A rare call with an answer (`UtilityCall`).

        Raises:
            EngineDead: the core has ended.
            EngineError: the call failed.
        """
        if self._dead_reason is not None:
            raise EngineDead(self._dead_reason)
        self._last_call_id += 1
        call_id = self._last_call_id
        answer = self._calls[call_id] = asyncio.get_running_loop().create_future()
        try:
            self._send(RequestKind.UTILITY, UtilityCall(call_id, method, list(args)))
            return await answer
        finally:
            del self._calls[call_id]

    async def shutdown(self, timeout_s: float) -> bool:
        """Asks the core to end, and waits for that.

        Returns:
            False if its process still runs after `timeout_s`.
        """
        if self._channel is None or self._ended is None:
            return False
        self._is_stopping = True
        if not self._ended.done():
            self._send(RequestKind.SHUTDOWN, Shutdown(0.0))
            await asyncio.wait([self._ended], timeout=timeout_s)
        return self._ended.done()

    def close(self) -> None:
        """Stops listening; the process itself is the manager's. Idempotent."""
        if self._loop is not None and not self._loop.is_closed() and self._ended is not None:
            if not self._ended.done():
                self._loop.remove_reader(self._manager.child.fileno())
                self._ended.cancel()
            self._die("The way to the engine core was closed.")
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _send(
        self, kind: RequestKind, body: EngineCoreRequest | list[str] | UtilityCall | Shutdown
    ) -> None:
        if self._channel is not None and self._dead_reason is None:
            # Nobody there: the process has just ended, which is noticed at its life line.
            self._channel.send(self._encoder.encode(kind, body))

    def _take_frames(self, frames: list[bytes]) -> None:
        for frame in frames:
            try:
                message = self._decoder.decode(frame)
            except BadMessage as error:
                self._die(f"The engine core sent what cannot be read: {error}.")
                return
            assert isinstance(message, EngineCoreOutputs), message
            if message.utility_result is not None:
                self._take_answer(message.utility_result)
            if message.dead is not None:
                self._die(f"The engine core cannot go on: {message.dead}")
                return
            if message.outputs or message.scheduler_stats is not None:
                self._received.append(message)
        if self._received:
            self._wake()

    def _take_answer(self, result: UtilityResult) -> None:
        answer = self._calls.get(result.call_id)
        if answer is None or answer.done():
            return  # the caller has gone
        if result.error is None:
            answer.set_result(result.result)
        else:
            answer.set_exception(EngineError(result.error))

    def _notice_end(self) -> None:
        """The life line is closed: the process has ended."""
        assert self._loop is not None
        assert self._ended is not None
        self._loop.remove_reader(self._manager.child.fileno())
        self._ended.set_result(None)
        if not self._is_stopping:
            # its last words may still be on their way, and say more than its exit status
            self._loop.call_later(LAST_WORDS_S, self._die_of_the_process)

    def _die_of_the_process(self) -> None:
        if self._dead_reason is None:
            self._die(f"The engine core is gone: {self._manager.child.describe_end()}.")

    def _die(self, reason: str) -> None:
        if self._dead_reason is not None:
            return
        self._dead_reason = reason
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(EngineDead(reason))
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
