"""`POST /reset_prefix_cache`, and the caches that do not exist: `/reset_mm_cache`,
`/reset_encoder_cache`.

Runs in: API process, event loop. Owns: nothing. Knows nothing of: the core.
"""

from __future__ import annotations

import msgspec

from octavo.api.asgi import Receive, Scope, Send, respond
from octavo.api.endpoint import Operation, QueryParam
from octavo.api.query import flag, query_of
from octavo.errors import EngineError, InvalidParameter, Unauthorized
from octavo.frontend.async_llm import AsyncLLM


class Success(msgspec.Struct):
    """Whether it was done."""

    success: bool


class Caches:
    """The routes."""

    def __init__(self, llm: AsyncLLM) -> None:
        self._llm = llm

    def operations(self) -> list[Operation]:
        """The routes."""
        return [
            Operation(
                ("POST",),
                "/reset_prefix_cache",
                self._reset_prefix_cache,
                "Forget cached prefixes; false while blocks are in use",
                "dev",
                response=Success,
                errors=(Unauthorized, InvalidParameter, EngineError),
                query_params={
                    "reset_running_requests": QueryParam(
                        "take running requests their blocks; they compute everything again"
                    ),
                    "reset_external": QueryParam("there is no external cache: without effect"),
                },
            ),
            *(
                Operation(
                    ("POST",),
                    path,
                    self._reset_nothing,
                    f"There is no {name} cache: nothing is left in it",
                    "dev",
                    errors=(Unauthorized,),
                )
                for path, name in (
                    ("/reset_mm_cache", "multi-modal"),
                    ("/reset_encoder_cache", "encoder"),
                )
            ),
        ]

    async def _reset_prefix_cache(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = query_of(scope)
        preempt = flag(query, "reset_running_requests")
        flag(query, "reset_external")
        success = await self._llm.reset_prefix_cache(preempt_running=preempt)
        await respond(send, 200, msgspec.json.encode(Success(success)))

    async def _reset_nothing(self, scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200)
