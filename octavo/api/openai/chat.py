"""`POST /v1/chat/completions`.

Neighbours: `octavo/api/openai/chat_prompt.py` (messages to text), `octavo/api/generation.py` (runs
it), `octavo/api/openai/reply_reading.py` (tools and reasoning), `octavo/api/openai/chat_reply.py`
(what the client sees).
Runs in: API process, event loop. Owns: the meaning of the request's fields.
Knows nothing of: the core, how outputs are sent.
"""

from __future__ import annotations

import msgspec

from octavo.api.asgi import Receive, Scope, Send
from octavo.api.body import parse_request, read_json_body
from octavo.api.endpoint import Operation
from octavo.api.generation import Job
from octavo.api.openai.chat_prompt import ChatPrompt
from octavo.api.openai.chat_reply import ChatReply
from octavo.api.openai.protocol import (
    ChatCompletionChunk,
    ChatCompletionRequest,
    ChatCompletionResponse,
)
from octavo.api.openai.reply_reading import ReplyReading
from octavo.api.openai.route import (
    RouteContext,
    response_id,
    truncated,
    unknown_field_headers,
)
from octavo.api.openai.sampling import (
    beam_search_params,
    check_http_limits,
    default_max_tokens,
    num_shown,
    sampling_params,
)
from octavo.api.openai.unsupported import KNOWN, refuse_unsupported
from octavo.api.openai.usage import UsageCounter, wants_usage
from octavo.errors import (
    EngineError,
    InvalidParameter,
    ModelNotFound,
    Overloaded,
    RequestError,
    Unauthorized,
)
from octavo.frontend.prompt import TextPrompt
from octavo.sampling_params import BeamSearchParams, SamplingParams


class ChatCompletions:
    """The chat route.

    Args:
        context: the engine and the ways to it.
        prompt: renders messages.
        reading: what tools and reasoning mean.
    """

    def __init__(self, context: RouteContext, prompt: ChatPrompt, reading: ReplyReading) -> None:
        self._context = context
        self._prompt = prompt
        self._reading = reading

    def operations(self) -> list[Operation]:
        """The routes."""
        return [
            Operation(
                ("POST",),
                "/v1/chat/completions",
                self._handle,
                "Answer a conversation",
                "chat",
                request=ChatCompletionRequest,
                response=ChatCompletionResponse,
                event=ChatCompletionChunk,
                errors=(RequestError, Unauthorized, ModelNotFound, EngineError, Overloaded),
            )
        ]

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_json_body(scope, receive)
        parsed = parse_request(
            body, ChatCompletionRequest, also_known=KNOWN, check_fields=refuse_unsupported
        )
        name = response_id("chatcmpl", scope, parsed.request)
        headers = unknown_field_headers(parsed.unknown_fields, name)
        job = await self.job(parsed.request, name, headers)
        await self._context.generator.run(job, scope, receive, send)

    async def job(
        self, request: ChatCompletionRequest, name: str, headers: list[tuple[bytes, bytes]]
    ) -> Job:
        """The checked request as what is generated and how it is told.

        Args:
            name: id of the response.
            headers: of the response.

        Raises:
            RequestError: the request cannot be served as sent.
        """
        context = self._context
        model = context.models.check(request.model)
        check_http_limits(request, max_stop_strings=context.server.max_stop_strings)
        plan = self._reading.plan(request)
        logprobs = self._logprobs(request)
        num_top = num_shown(request, logprobs)
        params = self._params(request, logprobs)
        shown = msgspec.structs.replace(request, tools=plan.shown_tools)
        text = self._prompt.render(shown, **plan.template_variables)
        params = plan.constrain(params, text)
        prompt = await truncated(context.llm, TextPrompt(text, request.add_special_tokens), request)
        at_end, in_chunks = wants_usage(
            request.stream_options, force=context.server.enable_force_include_usage
        )
        # tokens would tell the reasoning that is not to be told
        shows_tokens = request.include_reasoning or not self._reading.reads_reasoning
        reply = ChatReply(
            response_id=name,
            model=model,
            fingerprint=context.fingerprint,
            role=self._role(request),
            n=request.n,
            usage=UsageCounter(
                show_cached=context.server.enable_prompt_tokens_details,
                show_reasoning=self._reading.reads_reasoning,
                show_metrics=context.server.enable_per_request_metrics and request.n == 1,
            ),
            usage_at_end=at_end,
            usage_in_chunks=in_chunks,
            num_top_logprobs=num_top if shows_tokens else None,
            text=context.token_text(request) if num_top is not None else None,
            echo=self._echo(request),
            show_token_ids=request.return_token_ids and shows_tokens,
            show_prompt_logprobs=request.prompt_logprobs is not None,
            prompt_text=text if request.return_prompt_text else None,
            keep_text=context.server.enable_log_outputs,
            make_parsing=plan.parsing(text),
            show_reasoning=request.include_reasoning,
        )
        return Job(
            request_id=name,
            prompts=[prompt],
            params=params,
            reply=reply,
            stream=request.stream,
            priority=request.priority,
            cache_salt=request.cache_salt,
            headers=headers,
        )

    def _logprobs(self, request: ChatCompletionRequest) -> int | None:
        """Alternatives per token; None: no logprobs."""
        if request.top_logprobs and not request.logprobs:
            raise InvalidParameter(
                "when using `top_logprobs`, `logprobs` must be set to true. "
                "(parameter=top_logprobs)",
                param="top_logprobs",
            )
        if request.top_logprobs is not None and request.top_logprobs < 0:
            raise InvalidParameter(
                f"top_logprobs must be at least 0, got {request.top_logprobs}. "
                "(parameter=top_logprobs)",
                param="top_logprobs",
            )
        return (request.top_logprobs or 0) if request.logprobs else None

    def _params(
        self, request: ChatCompletionRequest, logprobs: int | None
    ) -> SamplingParams | BeamSearchParams:
        field, max_tokens = "max_completion_tokens", request.max_completion_tokens
        if max_tokens is None:
            field, max_tokens = "max_tokens", request.max_tokens
        if max_tokens is None:
            max_tokens = default_max_tokens(self._context.defaults)
        elif max_tokens < 1:
            raise InvalidParameter(
                f"{field} must be at least 1, got {max_tokens}. "
                f"(parameter={field}, value={max_tokens})",
                param=field,
            )
        if request.use_beam_search:
            if max_tokens is None:
                max_tokens = self._context.llm.max_model_len
            return beam_search_params(request, self._context.defaults, max_tokens=max_tokens)
        return sampling_params(
            request,
            self._context.defaults,
            max_tokens=max_tokens,
            logprobs=logprobs,
            prompt_logprobs=request.prompt_logprobs,
        )

    def _role(self, request: ChatCompletionRequest) -> str:
        if request.add_generation_prompt:
            return self._context.server.response_role
        role: str = request.messages[-1]["role"]
        return role

    def _echo(self, request: ChatCompletionRequest) -> str:
        """The last message, if it is to stand before the reply: same speaker and asked for."""
        last = request.messages[-1]
        content = last.get("content")
        if request.echo and last["role"] == self._role(request) and isinstance(content, str):
            return content
        return ""
