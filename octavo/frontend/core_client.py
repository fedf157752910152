"""What the front end needs of an engine core, and the client for a core in the same process.

Neighbours: `octavo/frontend/async_llm.py` (uses `AsyncCoreClient`), `octavo/llm.py` (uses
`InprocClient`), `octavo/frontend/zmq_client.py` (a core in another process).
Runs in: API process, or the user's process offline. Owns: nothing.
Knows nothing of: text, HTTP, how a core schedules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from octavo.messages.engine import EngineCoreOutputs, EngineCoreRequest
from octavo.messages.grammar import Vocabulary
from octavo.messages.profile import Profile


class AsyncCoreClient(Protocol):
    """A core that works on its own, seen from an event loop. Sending never waits."""

    def start(self) -> None:
        """Begins to listen; the core is ready and an event loop runs."""

    def add_requests(self, requests: Sequence[EngineCoreRequest]) -> None:
        """Sends requests, in order."""

    def abort_requests(self, request_ids: list[str]) -> None:
        """Asks the core to forget requests; unknown ids do no harm."""

    async def receive(self) -> list[EngineCoreOutputs]:
        """Waits for the core's next words, at least one message.

        Raises:
            EngineDead: the core has ended; the message says why.
        """

    async def call(self, method: str, *args: object) -> object:
        """A rare call with an answer (`UtilityCall`); needs someone in `receive`.

        Raises:
            EngineDead: the core has ended.
            EngineError: the call failed.
        """

    async def shutdown(self, timeout_s: float) -> bool:
        """Asks the core to end, and waits for that; False if it runs on after `timeout_s`."""

    def close(self) -> None:
        """Stops listening and frees what the client holds. Idempotent."""


class EngineCore(Protocol):
    """The core itself (`octavo/core/engine_core.py`), as a client in its process uses it."""

    def add_request(self, request: EngineCoreRequest) -> None: ...

    def abort_requests(self, request_ids: list[str]) -> None: ...

    def step(self) -> EngineCoreOutputs | None: ...

    @property
    def has_work(self) -> bool: ...

    def idle(self) -> None: ...

    def reset_prefix_cache(self, *, preempt_running: bool = False) -> bool: ...

    def set_vocabulary(self, vocabulary: Vocabulary) -> None: ...

    def start_profile(self) -> None: ...

    def stop_profile(self) -> Profile: ...

    def shutdown(self) -> None: ...


class InprocClient:
    """A core in this process: no sockets, no thread; work is done when `step` is called."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core

    def add_requests(self, requests: Sequence[EngineCoreRequest]) -> None:
        """Queues requests, in order."""
        for request in requests:
            self._core.add_request(request)

    def abort_requests(self, request_ids: list[str]) -> None:
        """Forgets requests; unknown ids do no harm."""
        self._core.abort_requests(request_ids)

    def step(self) -> EngineCoreOutputs | None:
        """Computes one step; None if it had nothing to say."""
        outputs = self._core.step()
        if not self._core.has_work:
            self._core.idle()
        return outputs

    def reset_prefix_cache(self, *, preempt_running: bool = False) -> bool:
        """Forgets cached prefixes; False while blocks are in use."""
        return self._core.reset_prefix_cache(preempt_running=preempt_running)

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        """The tokens, for grammars; comes before the first request with one."""
        self._core.set_vocabulary(vocabulary)

    def start_profile(self) -> None:
        """Clocks the operations of the steps to come."""
        self._core.start_profile()

    def stop_profile(self) -> Profile:
        """What they took."""
        return self._core.stop_profile()

    def close(self) -> None:
        """Ends the core."""
        self._core.shutdown()
