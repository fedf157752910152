"""The outputs of several requests as one stream, in the order in which they come.

Runs in: API process, event loop. Owns: one task per request when there is more than one.
Knows nothing of: what the outputs are for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from octavo.frontend.request_stream import RequestStream
from octavo.outputs import RequestOutput

Item = tuple[int, RequestOutput]  # (index of the request, its output)


async def merged_outputs(
    streams: Sequence[RequestStream], idle_s: float = 0.0
) -> AsyncGenerator[Item | None, None]:
    """Yields outputs as they come; None after `idle_s` seconds without one (0: never).

    Raises:
        EngineError: what a request ended with.
    """
    if len(streams) == 1:
        stream = streams[0]
        while True:
            try:
                if idle_s:
                    output = await stream.next_within(idle_s)
                else:
                    output = await stream.__anext__()
            except StopAsyncIteration:
                return
            yield None if output is None else (0, output)
    queue: asyncio.Queue[Item | BaseException | None] = asyncio.Queue(maxsize=len(streams))
    tasks = [
        asyncio.create_task(_pump(index, stream, queue)) for index, stream in enumerate(streams)
    ]
    try:
        num_left = len(streams)
        while num_left:
            try:
                item = await asyncio.wait_for(queue.get(), idle_s or None)
            except TimeoutError:
                yield None
                continue
            if item is None:
                num_left -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(
    index: int, stream: RequestStream, queue: asyncio.Queue[Item | BaseException | None]
) -> None:
    try:
        async for output in stream:
            await queue.put((index, output))
    except Exception as error:
        await queue.put(error)
    else:
        await queue.put(None)
