"""Routes of `VLLM_SERVER_DEV_MODE=1`: `POST /reset_prefix_cache`.

Runs in: API process, event loop. Owns: nothing. Knows nothing of: the core.
"""

from __future__ import annotations

from urllib.parse import parse_qsl

import msgspec

from octavo.api.asgi import Receive, Scope, Send, respond
from octavo.api.endpoint import Operation
from octavo.errors import EngineError, InvalidParameter, Unauthorized
from octavo.frontend.async_llm import AsyncLLM
from octavo.wording import shown

_TRUE_WORDS = frozenset({"1", "true", "t", "yes", "y", "on"})  # as pydantic reads them
_FALSE_WORDS = frozenset({"0", "false", "f", "no", "n", "off"})


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
                "Forget cached prefixes; false while blocks are in use "
                "(?reset_running_requests=true: those compute everything again)",
                "dev",
                response=Success,
                errors=(Unauthorized, InvalidParameter, EngineError),
            )
        ]

    async def _reset_prefix_cache(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        preempt = _flag(query, "reset_running_requests")
        _flag(query, "reset_external")  # there is no external cache: nothing is left in it
        success = await self._llm.reset_prefix_cache(preempt_running=preempt)
        await respond(send, 200, msgspec.json.encode(Success(success)))


def _flag(query: dict[str, str], name: str) -> bool:
    word = query.get(name, "false").lower()
    if word not in _TRUE_WORDS | _FALSE_WORDS:
        raise InvalidParameter(f"{name} must be true or false, got {shown(word)}.", param=name)
    return word in _TRUE_WORDS
