"""`POST /invocations`: chats and completions behind the one path that SageMaker calls.

Neighbours: `octavo/api/openai` (answers). Runs in: API process, event loop.
Owns: which route a body is meant for. Knows nothing of: what the routes do.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from octavo.api.asgi import Message, Receive, Scope, Send
from octavo.api.body import parse_request, read_json_body
from octavo.api.endpoint import Operation, types_of
from octavo.errors import InvalidParameter


class Target(msgspec.Struct, frozen=True):
    """A body that has the field is meant for the operation."""

    field: str
    operation: Operation


class _Form(msgspec.Struct):
    """What tells bodies apart."""

    messages: object = None
    prompt: object = None


class Invocations:
    """The route.

    Args:
        targets: the first one whose field a body has answers it.
    """

    def __init__(self, targets: Sequence[Target]) -> None:
        assert all(target.field in _Form.__struct_fields__ for target in targets)
        self._targets = targets

    def operations(self) -> list[Operation]:
        """The route."""
        routes = [target.operation for target in self._targets]
        return [
            Operation(
                ("POST",),
                "/invocations",
                self._handle,
                "What the body is a request for: a chat or a completion (SageMaker)",
                "server",
                request=tuple(t for route in routes for t in types_of(route.request)),
                response=tuple(t for route in routes for t in types_of(route.response)),
                event=tuple(t for route in routes for t in types_of(route.event)),
                errors=tuple({error: None for route in routes for error in route.errors}),
            )
        ]

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_json_body(scope, receive)
        form = parse_request(body, _Form).request
        for target in self._targets:
            if getattr(form, target.field) is not None:
                await target.operation.handler(scope, _replay(body, receive), send)
                return
        fields = " or ".join(target.field for target in self._targets)
        raise InvalidParameter(
            f"Cannot find suitable handler for request: the body must have {fields}.",
            param=self._targets[0].field,
        )


def _replay(body: bytes, receive: Receive) -> Receive:
    """What `receive` said before, once, and then what it says."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
