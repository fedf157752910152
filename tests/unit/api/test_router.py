from __future__ import annotations

import asyncio
from typing import Any

import pytest

from octavo.api.asgi import respond
from octavo.api.endpoint import Operation
from octavo.api.router import Router
from tests.fakes.asgi_client import AsgiClient

ROUTES = [
    (("GET", "POST"), "/a"),
    (("GET",), "/m"),
    (("GET",), "/m/{id:path}"),
    (("POST",), "/r/{id}/cancel"),
    (("GET",), "/r/{id}"),
]


def router() -> Router:
    def handler_of(path: str) -> Any:
        async def handle(scope: Any, receive: Any, send: Any) -> None:
            params = sorted(scope.get("path_params", {}).items())
            await respond(send, 200, f"{scope['method']} {path} {params}".encode())

        return handle

    operations = []
    for methods, path in ROUTES:
        handler = handler_of(path)
        operations.append((Operation(methods, path, handler, "", ""), handler))
    return Router(operations)


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("GET", "/a", "GET /a []"),
        ("POST", "/a", "POST /a []"),
        ("HEAD", "/a", "HEAD /a []"),
        ("GET", "/m/org/name", "GET /m/{id:path} [('id', 'org/name')]"),
        ("GET", "/r/1", "GET /r/{id} [('id', '1')]"),
        ("POST", "/r/1/cancel", "POST /r/{id}/cancel [('id', '1')]"),
    ],
)
def test_paths_find_their_handler(method: str, path: str, answer: str) -> None:
    async def main() -> None:
        found = await AsgiClient(router()).request(method, path)
        assert (found.status, found.body.decode()) == (200, answer)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("PUT", "/a", 405, "GET, HEAD, POST"),
        ("POST", "/m/x", 405, "GET, HEAD"),
        ("GET", "/a/", 404, None),
        ("GET", "/r/1/2", 404, None),
        ("GET", "/m/", 404, None),
        ("GET", "", 404, None),
        ("GET", "/" + "x" * 5000, 404, None),
    ],
)
def test_others_are_refused(method: str, path: str, status: int, allow: str | None) -> None:
    async def main() -> None:
        found = await AsgiClient(router()).request(method, path)
        assert found.status == status
        assert found.headers.get("allow") == allow
        assert len(found.error["message"]) < 300

    asyncio.run(main())


def test_a_route_twice_is_our_mistake() -> None:
    async def handle(scope: Any, receive: Any, send: Any) -> None: ...

    operation = Operation(("GET",), "/a", handle, "", "")
    with pytest.raises(AssertionError, match="twice"):
        Router([(operation, handle), (operation, handle)])


def test_lifespan_starts_and_ends() -> None:
    async def main() -> None:
        messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
        sent: list[Any] = []

        async def receive() -> Any:
            return messages.pop(0)

        async def send(message: Any) -> None:
            sent.append(message["type"])

        await router()({"type": "lifespan"}, receive, send)
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]

    asyncio.run(main())
