"""`POST /start_profile` and `POST /stop_profile`: where the time of steps goes, by operation.

Runs in: API process, event loop. Owns: the answers' shape. Knows nothing of: clocks.
"""

from __future__ import annotations

import logging

import msgspec

from octavo.api.asgi import Receive, Scope, Send, header, respond
from octavo.api.body import parse_request, read_json_body
from octavo.api.endpoint import Operation, request_id
from octavo.api.openai.route import unknown_field_headers
from octavo.errors import (
    EngineError,
    InvalidParameter,
    RequestError,
    Unauthorized,
    UnsupportedFeature,
)
from octavo.frontend.async_llm import AsyncLLM
from octavo.messages.profile import Profile

logger = logging.getLogger(__name__)


class StartProfileRequest(msgspec.Struct, kw_only=True):
    """Body of `POST /start_profile`, which may be left out."""

    #: would name files, of which there are none
    profile_prefix: str | None = None
    delay_iterations: int | None = None
    max_iterations: int | None = None


class ProfileRoutes:
    """The routes. One profile at a time: a second start begins anew."""

    def __init__(self, llm: AsyncLLM) -> None:
        self._llm = llm
        self._is_started = False

    def operations(self) -> list[Operation]:
        """The routes."""
        return [
            Operation(
                ("POST",),
                "/start_profile",
                self._start,
                "Clock every operation of the steps to come",
                "dev",
                request=StartProfileRequest,
                needs_body=False,
                errors=(Unauthorized, RequestError, EngineError),
            ),
            Operation(
                ("POST",),
                "/stop_profile",
                self._stop,
                "What they took; measuring the machine's limits stops all streams for a second",
                "dev",
                response=Profile,
                errors=(Unauthorized, InvalidParameter, EngineError),
            ),
        ]

    async def _start(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = []
        if header(scope, b"content-type") is not None:
            body = await read_json_body(scope, receive)
            headers = _check(body, request_id(scope))
        await self._llm.start_profile()
        self._is_started = True
        logger.info("A profile is being taken.")
        await respond(send, 200, headers=headers)

    async def _stop(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._is_started:
            raise InvalidParameter("No profile is being taken: POST /start_profile first.")
        self._is_started = False
        profile = await self._llm.stop_profile()
        logger.info("The profile has %d steps.", profile.num_steps)
        await respond(send, 200, msgspec.json.encode(profile))


def _check(body: bytes, name: str) -> list[tuple[bytes, bytes]]:
    parsed = parse_request(body, StartProfileRequest)
    for field in ("delay_iterations", "max_iterations"):
        if getattr(parsed.request, field):
            raise UnsupportedFeature(
                f"{field} is not available: a profile covers all steps between start and stop. "
                f"(parameter={field})",
                param=field,
            )
    return unknown_field_headers(parsed.unknown_fields, name)
