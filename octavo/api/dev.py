"""Routes of `VLLM_SERVER_DEV_MODE=1`: `POST /reset_prefix_cache`.

Runs in: API process, event loop. Owns: nothing. Knows nothing of: the core.
"""

from __future__ import annotations

import msgspec

from octavo.api.asgi import Receive, Scope, Send, respond
from octavo.api.endpoint import Operation
from octavo.errors import EngineError, Unauthorized
from octavo.frontend.async_llm import AsyncLLM


class Success(msgspec.Struct):
    """Whether it was done."""

    success: bool


class Dev:
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
                errors=(Unauthorized, EngineError),
            )
        ]

    async def _reset_prefix_cache(self, scope: Scope, receive: Receive, send: Send) -> None:
        success = await self._llm.reset_prefix_cache()
        await respond(send, 200, msgspec.json.encode(Success(success)))
