"""The HTTP application on a played engine, put together as the launcher does it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from octavo.api.app import build_app
from octavo.api.health import METRICS_TYPE
from octavo.api.http_metrics import HttpObserver
from octavo.api.parsing.factory import ReplyParsers
from octavo.config.server import ServerConfig
from octavo.frontend.async_llm import AsyncLLM
from tests.fakes.asgi_client import App, AsgiClient
from tests.fakes.fake_async_llm import PlayedCore, Script, make_llm, reversed_prompt
from tests.fakes.fake_template import FakeTemplate

VERSION = "1.2.3"


@dataclass
class Api:
    """The parts a test may look at."""

    client: AsgiClient
    core: PlayedCore
    llm: AsyncLLM
    template: FakeTemplate
    app: App

    async def is_alive(self) -> None:
        """The alive check of the user cases."""
        answer = await self.client.chat("hi")
        assert answer.status == 200, answer.body


@asynccontextmanager
async def serving(
    server: ServerConfig | None = None,
    *,
    script: Script = reversed_prompt,
    observe_http: HttpObserver | None = None,
    template: FakeTemplate | None = None,
    has_template: bool = True,
    parsers: ReplyParsers | None = None,
    observe_tool_reading: Callable[[bool, bool], None] | None = None,
    make_template: Callable[[str], Any] = lambda source: FakeTemplate(
        takes_parts=source == "parts"
    ),
    **llm_options: Any,
) -> AsyncIterator[Api]:
    """An application that is ready inside the block."""
    core = PlayedCore(script)
    llm = make_llm(core, **llm_options)
    template = template or FakeTemplate()
    app = build_app(
        llm,
        server or ServerConfig(),
        version=VERSION,
        template=template if has_template else None,
        make_template=make_template,
        render_metrics=lambda accept: (b"vllm:num_requests_running 0\n", METRICS_TYPE),
        observe_http=observe_http,
        parsers=parsers,
        observe_tool_reading=observe_tool_reading,
    )
    try:
        yield Api(AsgiClient(app), core, llm, template, app)
    finally:
        await llm.shutdown()
