from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from octavo.api.disconnect import CancelOnDisconnect

Receive = Callable[[], Awaitable[Any]]


def client_that_leaves() -> tuple[Receive, asyncio.Event]:
    left = asyncio.Event()

    async def receive() -> Any:
        await left.wait()
        return {"type": "http.disconnect"}

    return receive, left


def test_the_body_is_cancelled_and_the_code_after_it_runs() -> None:
    async def main() -> None:
        receive, left = client_that_leaves()
        cleaned = False
        async with CancelOnDisconnect(receive) as client:
            try:
                left.set()
                await asyncio.Event().wait()
            finally:
                cleaned = True
        assert cleaned
        assert client.disconnected
        await asyncio.sleep(0)  # nothing is left to be cancelled

    asyncio.run(main())


def test_a_body_that_ends_first_is_left_alone() -> None:
    async def main() -> None:
        receive, left = client_that_leaves()
        async with CancelOnDisconnect(receive) as client:
            await asyncio.sleep(0)
        left.set()
        await asyncio.sleep(0)
        assert not client.disconnected

    asyncio.run(main())


def test_cancellation_from_outside_passes() -> None:
    async def main() -> None:
        receive, _ = client_that_leaves()

        async def work() -> None:
            async with CancelOnDisconnect(receive):
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_both_at_once_still_cancel_the_task() -> None:
    async def main() -> None:
        receive, left = client_that_leaves()

        async def work() -> None:
            async with CancelOnDisconnect(receive):
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        left.set()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_errors_of_the_body_pass() -> None:
    async def main() -> None:
        receive, _ = client_that_leaves()
        with pytest.raises(ZeroDivisionError):
            async with CancelOnDisconnect(receive):
                raise ZeroDivisionError

    asyncio.run(main())
