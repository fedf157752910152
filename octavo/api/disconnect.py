"""Stops the work on a request when its client goes away.

Runs in: API process, event loop. Owns: one watcher task per request.
Knows nothing of: what the work is.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from octavo.api.asgi import Receive


class CancelOnDisconnect:
    """An async context whose body is cancelled when the client disconnects.

    The cancellation ends inside: code after the context sees `disconnected` and no exception. Use
    it after the body was read (`receive` then only says http.disconnect) and leave it before the
    last piece of the response is sent (servers say http.disconnect after that, too).
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.disconnected = False

    async def __aenter__(self) -> CancelOnDisconnect:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._num_cancels = task.cancelling()
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.disconnected = True
        self._task.cancel()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._watcher.cancel()
        if not self.disconnected:
            return False
        if exc is None:  # the body ended by itself just then: take the pending cancellation here
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                exc_type = asyncio.CancelledError
        only_ours = self._task.uncancel() <= self._num_cancels
        return only_ours and exc_type is not None and issubclass(exc_type, asyncio.CancelledError)
