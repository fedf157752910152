"""Development routes of vLLM that mean nothing here: asked for, they say why.

`GET /is_sleeping` has an answer. The others are no part of `/openapi.json`.

Runs in: API process, event loop. Owns: the sentences. Knows nothing of: the engine.
"""

from __future__ import annotations

import msgspec

from octavo.api.asgi import Receive, Scope, Send, respond
from octavo.api.endpoint import Operation
from octavo.errors import Unauthorized, UnsupportedFeature

_NO_SLEEP = (
    "is not available: the weights are in the memory they would be moved to. Stop the server; it "
    "starts within a second."
)
#: path -> the rest of the sentence that begins with it
_REASONS = {
    "/sleep": _NO_SLEEP,
    "/wake_up": _NO_SLEEP,
    "/release_kv_cache_memory": _NO_SLEEP,
    "/collective_rpc": "is not available: requests cannot call functions of the workers.",
    "/pause": "is not available: generation goes on until the server stops.",
    "/resume": "is not available: generation is never paused.",
}


class Sleeping(msgspec.Struct):
    """Answer of `GET /is_sleeping`."""

    is_sleeping: bool


class Sleep:
    """The routes."""

    def operations(self) -> list[Operation]:
        """The routes."""
        refused = [
            Operation(("POST",), path, self._refuse, f"{path} {reason}", "dev", is_documented=False)
            for path, reason in _REASONS.items()
        ]
        return [
            Operation(
                ("GET",),
                "/is_sleeping",
                self._is_sleeping,
                "Always false",
                "dev",
                response=Sleeping,
                errors=(Unauthorized,),
            ),
            *refused,
        ]

    async def _is_sleeping(self, scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, msgspec.json.encode(Sleeping(False)))

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["octavo.route"]
        raise UnsupportedFeature(f"{path} {_REASONS[path]}")
