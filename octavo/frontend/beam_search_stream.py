"""A beam search as one request of the API: rounds of requests behind one `RequestStream`.

Neighbours: `octavo/frontend/async_llm.py` (starts it), `octavo/frontend/beam_search.py` (chooses).
Runs in: API process, event loop thread. Owns: the task of one search.
Knows nothing of: the core, HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from octavo.frontend.beam_search import BeamSearch, candidates_of
from octavo.frontend.prompt import TokensPrompt
from octavo.frontend.request_stream import RequestStream
from octavo.outputs import PositionLogprobs, RequestOutput
from octavo.sampling_params import RequestOutputKind

if TYPE_CHECKING:
    from octavo.tokenizer.tokenizer import Tokenizer

#: adds the request of one beam and one round: prompt, id
AddRequest = Callable[[TokensPrompt, str], Awaitable[RequestStream]]


def run_beam_search(
    search: BeamSearch,
    add_request: AddRequest,
    *,
    request_id: str,
    prompt: str | None,
    tokenizer: Tokenizer | None,
) -> RequestStream:
    """Starts the search; the stream gives one output at its end. Leaving the stream ends it."""
    task: asyncio.Task[None] | None = None

    def leave(request_id: str) -> None:
        assert task is not None
        task.cancel()

    stream = RequestStream(request_id, search.prompt_token_ids, RequestOutputKind.FINAL_ONLY, leave)

    async def run() -> None:
        try:
            round_number = 0
            while not search.is_done:
                search.advance(await _round(search, add_request, f"{request_id}-{round_number}"))
                round_number += 1
            stream.put(
                RequestOutput(
                    request_id, prompt, search.prompt_token_ids, search.best(tokenizer), True
                )
            )
        except Exception as error:  # the consumer gets it, whatever it is
            stream.fail(error)

    task = asyncio.get_running_loop().create_task(run(), name="octavo-beam-search")
    return stream


async def _round(search: BeamSearch, add_request: AddRequest, name: str) -> list[PositionLogprobs]:
    """One more token for every beam; all together, so that they share steps."""
    async with AsyncExitStack() as stack:
        streams = []
        for index, prompt in enumerate(search.prompts()):
            stream = await add_request(prompt, f"{name}-{index}")
            streams.append(await stack.enter_async_context(stream))
        return [candidates_of(await anext(stream)) for stream in streams]
