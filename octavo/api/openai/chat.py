"""`POST /v1/chat/completions`.

Neighbours: `octavo/api/openai/chat_prompt.py` (messages to text), `octavo/api/generation.py` (runs
it), `octavo/api/openai/chat_reply.py` (what the client sees).
Runs in: API process, event loop. Owns: the meaning of the request's fields.
Knows nothing of: the core, how outputs are sent.
"""

from __future__ import annotations

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
    NamedToolChoice,
)
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
    UnsupportedFeature,
)
from octavo.frontend.prompt import TextPrompt
from octavo.sampling_params import BeamSearchParams, SamplingParams
from octavo.wording import printable


class ChatCompletions:
    """The chat route.

    Args:
        context: the engine and the ways to it.
        prompt: renders messages.
    """

    def __init__(self, context: RouteContext, prompt: ChatPrompt) -> None:
        self._context = context
        self._prompt = prompt

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
        check_tools(request)
        logprobs = self._logprobs(request)
        num_top = num_shown(request, logprobs)
        params = self._params(request, logprobs)
        variables = (
            {}
            if request.reasoning_effort is None
            else {"reasoning_effort": request.reasoning_effort}
        )
        text = self._prompt.render(request, **variables)
        prompt = await truncated(context.llm, TextPrompt(text, request.add_special_tokens), request)
        at_end, in_chunks = wants_usage(
            request.stream_options, force=context.server.enable_force_include_usage
        )
        reply = ChatReply(
            response_id=name,
            model=model,
            fingerprint=context.fingerprint,
            role=self._role(request),
            n=request.n,
            usage=UsageCounter(show_cached=context.server.enable_prompt_tokens_details),
            usage_at_end=at_end,
            usage_in_chunks=in_chunks,
            num_top_logprobs=num_top,
            text=context.token_text(request) if num_top is not None else None,
            echo=self._echo(request),
            show_token_ids=request.return_token_ids,
            show_prompt_logprobs=request.prompt_logprobs is not None,
            keep_text=context.server.enable_log_outputs,
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


def check_tools(request: ChatCompletionRequest) -> None:
    """Tools without a parser: only `tool_choice: none` can be served. An empty list means no tools.

    Raises:
        InvalidParameter, UnsupportedFeature: `param` is tools or tool_choice.
    """
    choice = request.tool_choice
    if not request.tools:
        if choice not in (None, "none", "auto"):
            raise InvalidParameter(
                "When using `tool_choice`, `tools` must be set. (parameter=tool_choice)",
                param="tool_choice",
            )
        return
    if choice is None or choice == "auto":
        raise UnsupportedFeature(
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be '
            "set, which are not available in this version of Octavo; set tool_choice to none or "
            "remove tools.",
            param="tools",
        )
    if choice != "none":
        named = isinstance(choice, NamedToolChoice)
        shown = (
            printable(choice.function.name, 60) if isinstance(choice, NamedToolChoice) else choice
        )
        raise UnsupportedFeature(
            f'tool_choice="{shown}"{" (a named tool)" if named else ""} requires '
            "--tool-call-parser to be set, which is not available in this version of Octavo.",
            param="tool_choice",
        )
