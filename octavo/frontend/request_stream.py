"""`RequestStream`: the outputs of one request, from the output task to one consumer.

The producer never waits. A consumer that is slower than the engine finds one output in which what
came meanwhile is merged: nothing is lost and nothing piles up.

Neighbours: `octavo/frontend/output_processor.py` (puts), `octavo/frontend/async_llm.py` (makes it),
`octavo/api` (reads). Runs in: API process, event loop thread. Owns: outputs not yet read.
Knows nothing of: the core, HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from octavo.outputs import CompletionOutput, RequestOutput
from octavo.sampling_params import RequestOutputKind


class RequestStream:
    """The outputs of one request: an async iterator and an async context manager, for one consumer.

    Leaving it before the request has ended (`aclose()`, end of `async with`, cancellation while
    waiting in `__anext__`) aborts the request in the core at once.

    Args:
        request_id: of the request.
        prompt_token_ids: the prompt as the engine sees it, known before the first output.
        output_kind: how outputs that were not read yet are merged.
        on_leave: called at most once, when the consumer leaves early.
    """

    __slots__ = (
        "_error",
        "_is_delta",
        "_is_done",
        "_is_finished",
        "_on_leave",
        "_pending",
        "_waiter",
        "prompt_token_ids",
        "request_id",
    )

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: list[int],
        output_kind: RequestOutputKind,
        on_leave: Callable[[str], None],
    ) -> None:
        self.request_id = request_id
        self.prompt_token_ids = prompt_token_ids
        self._is_delta = output_kind is RequestOutputKind.DELTA
        self._on_leave = on_leave
        self._pending: RequestOutput | None = None
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._is_finished = False  # the producer has said everything
        self._is_done = False  # the consumer has read everything, or left

    # producer's side

    def put(self, output: RequestOutput) -> None:
        """Adds an output. After the last one (`finished`) nothing may follow."""
        assert not self._is_finished, f"output of {self.request_id} after its end"
        if self._pending is None:
            self._pending = output
        else:
            self._pending = merge(self._pending, output, self._is_delta)
        self._is_finished = output.finished
        self._wake()

    def fail(self, error: BaseException) -> None:
        """Ends the stream with an error; outputs not yet read come first. No effect after the
        end."""
        if not self._is_finished:
            self._is_finished = True
            self._error = error
            self._wake()

    # consumer's side

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RequestOutput:
        if self._pending is None and not self._is_finished and not self._is_done:
            try:
                await self._new_waiter()
            except asyncio.CancelledError:
                self._leave()
                raise
        return self._read()

    async def next_within(self, timeout_s: float) -> RequestOutput | None:
        """The next output, or None if none came in time: nothing is lost and the request goes on.

        Raises:
            StopAsyncIteration: there are no more outputs.
        """
        if self._pending is None and not self._is_finished and not self._is_done:
            waiter = self._new_waiter()
            timer = waiter.get_loop().call_later(timeout_s, _set, waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self._leave()
                raise
            finally:
                timer.cancel()
            if self._pending is None and not self._is_finished and not self._is_done:
                return None
        return self._read()

    async def aclose(self) -> None:
        """Leaves the request: aborts it in the core if it has not ended."""
        self._leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._leave()

    def _read(self) -> RequestOutput:
        output = self._pending
        if output is not None:
            self._pending = None
            return output
        self._is_done = True
        error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopAsyncIteration

    def _leave(self) -> None:
        if self._is_done:
            return
        self._is_done = True
        self._pending = None
        self._wake()
        if not self._is_finished:
            self._is_finished = True
            self._on_leave(self.request_id)

    def _new_waiter(self) -> asyncio.Future[None]:
        assert self._waiter is None or self._waiter.done(), "a request stream has one consumer"
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def _wake(self) -> None:
        if self._waiter is not None:
            _set(self._waiter)


def merge(earlier: RequestOutput, later: RequestOutput, is_delta: bool) -> RequestOutput:
    """One output that says what both say.

    Deltas of the same index are joined; in the other kinds the later one of an index replaces the
    earlier.
    """
    by_index = {completion.index: completion for completion in earlier.outputs}
    for new in later.outputs:
        old = by_index.get(new.index)
        if old is not None and is_delta:
            _append(old, new)
        else:
            by_index[new.index] = new
    later.outputs = list(by_index.values())
    if later.prompt_logprobs is None:
        later.prompt_logprobs = earlier.prompt_logprobs
    return later


def _append(old: CompletionOutput, new: CompletionOutput) -> None:
    old.text += new.text
    old.token_ids += new.token_ids
    if new.logprobs is not None:
        if old.logprobs is None:
            old.logprobs = new.logprobs
        else:
            old.logprobs.extend(new.logprobs)
    old.cumulative_logprob = new.cumulative_logprob
    old.finish_reason = new.finish_reason
    old.stop_reason = new.stop_reason


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
