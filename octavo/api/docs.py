"""`/openapi.json`, `/docs` (Swagger UI) and `/redoc`. The pages load their scripts from a CDN, as
FastAPI's do.

Runs in: API process, event loop. Owns: the pages and the cached document.
Knows nothing of: what routes do.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from octavo.api.asgi import Receive, Scope, Send, respond
from octavo.api.endpoint import Operation
from octavo.api.openapi import openapi_document

HTML = b"text/html; charset=utf-8"

_SWAGGER = """<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
<title>{title}</title>
<link rel="stylesheet" href="https://cdn.jsdelivr.net/npm/swagger-ui-dist@5/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="https://cdn.jsdelivr.net/npm/swagger-ui-dist@5/swagger-ui-bundle.js"></script>
<script>
SwaggerUIBundle({{url: "{url}", dom_id: "#swagger-ui", deepLinking: true}});
</script>
</body>
</html>
"""

_REDOC = """<!DOCTYPE html>
<html>
<head><meta charset="utf-8"><title>{title}</title></head>
<body style="margin: 0">
<redoc spec-url="{url}"></redoc>
<script src="https://cdn.jsdelivr.net/npm/redoc@2/bundles/redoc.standalone.js"></script>
</body>
</html>
"""


class Docs:
    """The routes.

    Args:
        documented: the operations the document describes.
        has_keys: the server asks for API keys.
    """

    def __init__(
        self, documented: Sequence[Operation], *, title: str, version: str, has_keys: bool
    ) -> None:
        self._documented = documented
        self._title = title
        self._version = version
        self._has_keys = has_keys
        self._document: bytes | None = None

    def operations(self) -> list[Operation]:
        """The routes; they do not describe themselves."""
        return [
            Operation(("GET",), "/openapi.json", self._openapi, "This document", "docs"),
            Operation(("GET",), "/docs", self._swagger, "Swagger UI", "docs"),
            Operation(("GET",), "/redoc", self._redoc, "ReDoc", "docs"),
        ]

    async def _openapi(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._document is None:
            self._document = msgspec.json.encode(
                openapi_document(
                    self._documented,
                    title=self._title,
                    version=self._version,
                    has_keys=self._has_keys,
                )
            )
        await respond(send, 200, self._document)

    async def _swagger(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._page(_SWAGGER, scope, send)

    async def _redoc(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._page(_REDOC, scope, send)

    async def _page(self, template: str, scope: Scope, send: Send) -> None:
        from html import escape  # brings all of HTML's entities along; for a page few ask for

        url = scope.get("root_path", "") + "/openapi.json"
        page = template.format(title=escape(self._title), url=escape(url))
        await respond(send, 200, page.encode(), content_type=HTML)
