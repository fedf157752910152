"""Structured output of requests on an event loop: checked in a thread, within a time.

Neighbours: `octavo/frontend/async_llm.py` (caller), `octavo/frontend/grammar_checker.py`.
Runs in: API process, event loop. Owns: the thread.
Knows nothing of: grammars, HTTP, sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from octavo.errors import InvalidParameter
from octavo.messages.grammar import Grammar, Vocabulary
from octavo.transport.process_name import name_thread

if TYPE_CHECKING:
    from octavo.sampling_params import StructuredOutputsParams

#: of one check, the wait for its turn not counted; the library's own limits end it mostly sooner
CHECK_BUDGET_S = 5.0


class Checker(Protocol):
    """What makes grammars; may take long, any thread."""

    def check(self, params: StructuredOutputsParams) -> Grammar: ...

    def vocabulary(self) -> Vocabulary: ...


class GrammarGate:
    """Lets the grammars of requests through.

    Args:
        checker: makes them.
        send_vocabulary: gives the core the tokens; awaited once, before the first grammar.
        budget_s: most seconds for one.
    """

    def __init__(
        self,
        checker: Checker,
        send_vocabulary: Callable[[Vocabulary], Coroutine[Any, Any, object]],
        *,
        budget_s: float = CHECK_BUDGET_S,
    ) -> None:
        self._checker = checker
        self._send_vocabulary = send_vocabulary
        self._budget_s = budget_s
        self._thread: ThreadPoolExecutor | None = None
        self._vocabulary: asyncio.Task[None] | None = None

    async def pass_through(self, params: StructuredOutputsParams) -> Grammar:
        """The grammar, right and ready to be sent.

        Raises:
            InvalidParameter: it cannot be served, or checking takes too long.
            EngineDead: the core is gone.
        """
        loop = asyncio.get_running_loop()
        if self._thread is None:
            name = "octavo-check"
            self._thread = ThreadPoolExecutor(1, name, initializer=name_thread, initargs=(name,))
        started = loop.create_future()
        grammar = loop.run_in_executor(self._thread, self._check, loop, started, params)
        try:
            await asyncio.wait([started, grammar], return_when=asyncio.FIRST_COMPLETED)
            async with asyncio.timeout(self._budget_s):
                checked = await grammar
        except TimeoutError:
            raise InvalidParameter(
                f"{params.origin} takes more than {self._budget_s:g} s to check; make it smaller.",
                param=params.origin,
            ) from None
        finally:
            grammar.cancel()  # one that has not begun: its client has gone
            started.cancel()
        await self._core_knows_vocabulary()
        return checked

    def close(self) -> None:
        """Ends the thread once its present work is done. Idempotent."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _check(
        self,
        loop: asyncio.AbstractEventLoop,
        started: asyncio.Future[None],
        params: StructuredOutputsParams,
    ) -> Grammar:
        loop.call_soon_threadsafe(_set, started)
        return self._checker.check(params)

    async def _core_knows_vocabulary(self) -> None:
        """Sends the tokens, once for all requests, also for those that come meanwhile."""
        task = self._vocabulary
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._vocabulary = asyncio.create_task(self._give_vocabulary())
        await asyncio.shield(task)

    async def _give_vocabulary(self) -> None:
        vocabulary = await asyncio.to_thread(self._checker.vocabulary)
        await self._send_vocabulary(vocabulary)


def _set(started: asyncio.Future[None]) -> None:
    if not started.done():
        started.set_result(None)
