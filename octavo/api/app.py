"""`build_app`: the routes, in the layers every request passes.

    request ids -> HTTP metrics -> --middleware -> CORS -> keys -> router -> Endpoint(handler)

CORS is outside of the keys, so that a browser may read a 401.

Runs in: API process, once at start-up. Owns: the order of the layers.
Knows nothing of: sockets, processes, what handlers do.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from octavo.api.asgi import DIRECT_WRITER, Handler, Receive, Scope, Send
from octavo.api.auth import Authentication
from octavo.api.docs import Docs
from octavo.api.endpoint import Endpoint, Operation
from octavo.api.generation import Generator
from octavo.api.health import PROBES, Health
from octavo.api.http_metrics import HttpMetrics, HttpObserver
from octavo.api.invocations import Invocations, Target
from octavo.api.kv_event_sources import KVEventSources
from octavo.api.openai.chat import ChatCompletions
from octavo.api.openai.chat_batch import ChatBatch
from octavo.api.openai.chat_prompt import ChatPrompt, Template
from octavo.api.openai.completions import Completions
from octavo.api.openai.models import ServedModels
from octavo.api.openai.render import Render
from octavo.api.openai.reply_reading import ReadingSettings, ReplyReading
from octavo.api.openai.route import RouteContext
from octavo.api.openai.tokenize import Tokenize
from octavo.api.request_ids import RequestIds
from octavo.api.request_log import RequestLog
from octavo.api.router import Router
from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from octavo.frontend.async_llm import AsyncLLM

if TYPE_CHECKING:  # parsers are imported only where there are some
    from octavo.api.parsing.factory import ReplyParsers

TITLE = "Octavo"
#: not counted in the HTTP metrics, as in vLLM
UNCOUNTED = PROBES | {"/load", "/version"}


def build_app(
    llm: AsyncLLM,
    server: ServerConfig,
    *,
    version: str,
    template: Template | None,
    make_template: Callable[[str], Template],
    render_metrics: Callable[[str], tuple[bytes, str]],
    observe_http: HttpObserver | None = None,
    parsers: ReplyParsers | None = None,
    observe_tool_reading: Callable[[bool, bool], None] | None = None,
) -> Handler:
    """The ASGI application.

    Args:
        llm: the engine; need not be ready.
        version: of the package.
        template: renders chats; None if the model has none and none was given.
        make_template: compiles the template of a request (`--trust-request-chat-template`).
        render_metrics: the Prometheus page and its content type, for an `Accept` header.
        observe_http: takes (method, path, status class, seconds) of each request.
        parsers: of replies; None: all of a reply is content.
        observe_tool_reading: takes (streamed, called a tool) of each choice read for calls.

    Raises:
        ConfigError: a `--middleware` cannot be imported.
    """
    reading = _reply_reading(llm, server, parsers, observe_tool_reading)
    operations = _operations(llm, server, version, template, make_template, render_metrics, reading)
    if not server.disable_fastapi_docs:
        docs = Docs(list(operations), title=TITLE, version=version, has_keys=bool(server.api_keys))
        operations += docs.operations()
    app: Handler = _router(operations, log_stack=server.log_error_stack)
    if server.api_keys:
        open_paths = {operation.path for operation in operations if operation.is_open}
        app = Authentication(app, server.api_keys, open_paths)
    if server.allowed_origins:
        app = _allow_origins(app, server)
    if server.middleware:
        app = _without_direct_writer(app)  # they must see every byte
        for name in server.middleware:
            app = _import_middleware(name)(app)
    if observe_http is not None:
        app = HttpMetrics(app, observe_http, UNCOUNTED)
    if server.enable_request_id_headers:
        app = RequestIds(app)
    return app


def _reply_reading(
    llm: AsyncLLM,
    server: ServerConfig,
    parsers: ReplyParsers | None,
    observe: Callable[[bool, bool], None] | None,
) -> ReplyReading:
    return ReplyReading(
        ReadingSettings(
            parsers=parsers,
            is_auto_choice_enabled=server.enable_auto_tool_choice,
            strict_level=server.tool_strict_level,
            excludes_unused_tools=server.exclude_tools_when_tool_choice_none,
            constrains_reasoning=llm.config.structured_outputs.enable_in_reasoning,
            template_kwargs=server.default_chat_template_kwargs,
            tokens=None if parsers is None else llm.tokenizer,
            observe=observe,
        )
    )


def _operations(
    llm: AsyncLLM,
    server: ServerConfig,
    version: str,
    template: Template | None,
    make_template: Callable[[str], Template],
    render_metrics: Callable[[str], tuple[bytes, str]],
    reading: ReplyReading,
) -> list[Operation]:
    model = llm.model_config
    models = ServedModels(
        model.served_model_names or [model.model],
        root=model.model,
        max_model_len=lambda: llm.max_model_len,
    )
    generator = Generator(
        llm,
        keep_alive_s=server.sse_keep_alive_interval_s,
        log=RequestLog(
            inputs=server.enable_log_requests,
            outputs=server.enable_log_outputs,
            max_len=server.max_log_len,
        ),
        log_stack=server.log_error_stack,
    )
    prompt = ChatPrompt(
        template,
        make_template=make_template,
        content_format=server.chat_template_content_format,
        trust_request_template=server.trust_request_chat_template,
        default_kwargs=server.default_chat_template_kwargs,
        max_pieces=lambda: llm.max_model_len,
    )
    health = Health(
        llm,
        version=version,
        render_metrics=render_metrics,
        num_running=(
            (lambda: generator.num_running) if server.enable_server_load_tracking else None
        ),
        guard_metrics=server.api_key_guards_metrics,
    )
    fingerprint = _fingerprint(llm, version)
    context = RouteContext(llm, generator, models, server, fingerprint)
    chat, completions = ChatCompletions(context, prompt, reading), Completions(context)
    targets = [
        Target(field, operation)
        for field, route in (("messages", chat), ("prompt", completions))
        for operation in route.operations()
    ]
    operations = [
        *health.operations(),
        *KVEventSources(llm).operations(),
        *models.operations(),
        *chat.operations(),
        *ChatBatch(context, chat).operations(),
        *completions.operations(),
        *Tokenize(llm, models, prompt).operations(),
        *Render(llm, chat, completions).operations(),
        *Invocations(targets).operations(),
    ]
    if server.enable_tokenizer_info_endpoint:
        # only for this flag: importing it costs start-up time
        from octavo.api.openai.tokenizer_info import TokenizerInfo

        operations += TokenizerInfo(llm).operations()
    if server.dev_mode:
        operations += _dev_operations(llm, server, version)
    return operations


def _dev_operations(llm: AsyncLLM, server: ServerConfig, version: str) -> list[Operation]:
    # only in dev mode: importing them costs start-up time
    from octavo.api.dev.caches import Caches
    from octavo.api.dev.profile import ProfileRoutes
    from octavo.api.dev.server_info import ServerInfoRoute
    from octavo.api.dev.sleep import Sleep

    return [
        *Caches(llm).operations(),
        *ServerInfoRoute(llm.config, server, version=version).operations(),
        *ProfileRoutes(llm).operations(),
        *Sleep().operations(),
    ]


def _router(operations: list[Operation], *, log_stack: bool) -> Handler:
    return Router(
        [
            (
                operation,
                Endpoint(
                    operation.handler, operation.path.replace(":path}", "}"), log_stack=log_stack
                ),
            )
            for operation in operations
        ]
    )


def _allow_origins(app: Handler, server: ServerConfig) -> Handler:
    # only for this flag: importing it costs start-up time
    from starlette.middleware.cors import CORSMiddleware

    return CORSMiddleware(
        app,
        allow_origins=server.allowed_origins,
        allow_credentials=server.allow_credentials,
        allow_methods=server.allowed_methods,
        allow_headers=server.allowed_headers,
    )


def _without_direct_writer(app: Handler) -> Handler:
    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        scope.get("extensions", {}).pop(DIRECT_WRITER, None)
        await app(scope, receive, send)

    return handle


def _fingerprint(llm: AsyncLLM, version: str) -> str:
    """`octavo-<version>-<8 hex>`: changes with the model and how it is computed."""
    digest = hashlib.sha256(msgspec.msgpack.encode(llm.model_config)).hexdigest()
    return f"octavo-{version}-{digest[:8]}"


def _import_middleware(name: str) -> Callable[[Any], Handler]:
    """An ASGI middleware class, or an async function `(request, call_next)`.

    Raises:
        ConfigError: it cannot be imported or is neither.
    """
    module_name, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"--middleware {name} cannot be imported: {error}.") from None
    if inspect.isclass(found):
        return cast(Callable[[Any], Handler], found)
    if inspect.iscoroutinefunction(found):
        # only for this flag: importing it costs start-up time
        from starlette.middleware.base import BaseHTTPMiddleware

        return functools.partial(BaseHTTPMiddleware, dispatch=found)
    raise ConfigError(f"--middleware {name} must be an ASGI middleware class or an async function.")
