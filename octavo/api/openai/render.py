"""`POST /v1/chat/completions/render` and `POST /v1/completions/render`: a request as the engine
would get it, token ids and sampling parameters; nothing is generated.

Neighbours: `octavo/api/openai/chat.py`, `octavo/api/openai/completions.py` (make the job).
Runs in: API process, event loop. Owns: the shape of the answer.
Knows nothing of: templates, sampling, the core.
"""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.api.asgi import Receive, Scope, Send, respond
from octavo.api.body import parse_request, read_json_body
from octavo.api.endpoint import Operation
from octavo.api.generation import Job
from octavo.api.openai.chat import ChatCompletions
from octavo.api.openai.completions import Completions
from octavo.api.openai.protocol import ChatCompletionRequest, CompletionRequest, StreamOptions
from octavo.api.openai.route import response_id, unknown_field_headers
from octavo.api.openai.unsupported import KNOWN, refuse_unsupported
from octavo.errors import (
    EngineError,
    InvalidParameter,
    ModelNotFound,
    Overloaded,
    RequestError,
    Unauthorized,
)
from octavo.frontend.async_llm import AsyncLLM
from octavo.sampling_params import SamplingParams


class RenderedRequest(msgspec.Struct, kw_only=True):
    """What vLLM calls a GenerateRequest; parameters that have their defaults are left out."""

    request_id: str
    token_ids: list[int]
    sampling_params: dict[str, Any]
    model: str
    stream: bool
    stream_options: StreamOptions | None = None
    cache_salt: str | None = None
    priority: int = 0


class Render:
    """The two routes.

    Args:
        llm: tokenises and checks.
        chat: what makes a job of a conversation.
        completions: what makes a job of prompts.
    """

    def __init__(self, llm: AsyncLLM, chat: ChatCompletions, completions: Completions) -> None:
        self._llm = llm
        self._chat = chat
        self._completions = completions

    def operations(self) -> list[Operation]:
        """The routes."""
        errors = (RequestError, Unauthorized, ModelNotFound, EngineError, Overloaded)
        return [
            Operation(
                ("POST",),
                "/v1/chat/completions/render",
                self._render_chat,
                "A conversation as token ids and sampling parameters",
                "tokenize",
                request=ChatCompletionRequest,
                response=RenderedRequest,
                errors=errors,
            ),
            Operation(
                ("POST",),
                "/v1/completions/render",
                self._render_completion,
                "Prompts as token ids and sampling parameters",
                "tokenize",
                request=CompletionRequest,
                response=list[RenderedRequest],
                errors=errors,
            ),
        ]

    async def _render_chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_json_body(scope, receive)
        parsed = parse_request(
            body, ChatCompletionRequest, also_known=KNOWN, check_fields=refuse_unsupported
        )
        name = response_id("chatcmpl", scope, parsed.request)
        headers = unknown_field_headers(parsed.unknown_fields, name)
        job = await self._chat.job(parsed.request, name, headers)
        (rendered,) = await self._rendered(parsed.request, job)
        await respond(send, 200, msgspec.json.encode(rendered), headers=headers)

    async def _render_completion(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_json_body(scope, receive)
        parsed = parse_request(
            body, CompletionRequest, also_known=KNOWN, check_fields=refuse_unsupported
        )
        name = response_id("cmpl", scope, parsed.request)
        headers = unknown_field_headers(parsed.unknown_fields, name)
        job = await self._completions.job(parsed.request, name, headers)
        rendered = await self._rendered(parsed.request, job)
        await respond(send, 200, msgspec.json.encode(rendered), headers=headers)

    async def _rendered(
        self, request: ChatCompletionRequest | CompletionRequest, job: Job
    ) -> list[RenderedRequest]:
        params = job.params
        if not isinstance(params, SamplingParams):
            raise InvalidParameter(
                "A beam search cannot be rendered: it is many requests. "
                "(parameter=use_beam_search)",
                param="use_beam_search",
            )
        rendered = []
        for index, prompt in enumerate(job.prompts):
            name = job.request_id if len(job.prompts) == 1 else f"{job.request_id}-{index}"
            resolved = await self._llm.render(prompt, params, name)
            shown: dict[str, Any] = msgspec.to_builtins(params, str_keys=True)
            shown["max_tokens"] = resolved.sampling_params.max_tokens
            rendered.append(
                RenderedRequest(
                    request_id=name,
                    token_ids=resolved.prompt_token_ids,
                    sampling_params=shown,
                    model=request.model,
                    stream=request.stream,
                    stream_options=request.stream_options if request.stream else None,
                    cache_salt=request.cache_salt,
                    priority=request.priority,
                )
            )
        return rendered
