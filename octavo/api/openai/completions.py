"""`POST /v1/completions`.

Neighbours: `octavo/api/generation.py` (runs it), `octavo/api/openai/completion_reply.py` (what the
client sees).
Runs in: API process, event loop. Owns: the meaning of the request's fields.
Knows nothing of: the core, how outputs are sent.
"""

from __future__ import annotations

from typing import Any

from octavo.api.asgi import Receive, Scope, Send
from octavo.api.body import parse_request, read_json_body
from octavo.api.endpoint import Operation
from octavo.api.generation import Job
from octavo.api.openai.completion_reply import CompletionReply
from octavo.api.openai.protocol import CompletionChunk, CompletionRequest, CompletionResponse
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
from octavo.api.openai.thinking_budget import refuse_budget
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
from octavo.frontend.prompt import Prompt, TextPrompt, TokensPrompt
from octavo.sampling_params import MAX_N, BeamSearchParams, SamplingParams

DEFAULT_MAX_TOKENS = 16


class Completions:
    """The completion route.

    Args:
        context: the engine and the ways to it.
    """

    def __init__(self, context: RouteContext) -> None:
        self._context = context

    def operations(self) -> list[Operation]:
        """The routes."""
        return [
            Operation(
                ("POST",),
                "/v1/completions",
                self._handle,
                "Continue one or several prompts",
                "completions",
                request=CompletionRequest,
                response=CompletionResponse,
                event=CompletionChunk,
                errors=(RequestError, Unauthorized, ModelNotFound, EngineError, Overloaded),
            )
        ]

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_json_body(scope, receive)
        parsed = parse_request(
            body, CompletionRequest, also_known=KNOWN, check_fields=refuse_unsupported
        )
        name = response_id("cmpl", scope, parsed.request)
        headers = unknown_field_headers(parsed.unknown_fields, name)
        job = await self.job(parsed.request, name, headers)
        await self._context.generator.run(job, scope, receive, send)

    async def job(
        self, request: CompletionRequest, name: str, headers: list[tuple[bytes, bytes]]
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
        prompts = read_prompts(
            request.prompt,
            add_special_tokens=request.add_special_tokens,
            max_prompts=context.server.max_completion_prompts,
        )
        if len(prompts) * request.n > MAX_N:
            raise InvalidParameter(
                f"n={request.n} for {len(prompts)} prompts is more than {MAX_N} outputs; send "
                f"fewer prompts at a time. (parameter=n, value={request.n})",
                param="n",
            )
        params = self._params(request)
        prompts = [await truncated(context.llm, prompt, request) for prompt in prompts]
        at_end, in_chunks = wants_usage(
            request.stream_options, force=context.server.enable_force_include_usage
        )
        reply = CompletionReply(
            response_id=name,
            model=model,
            fingerprint=context.fingerprint,
            num_prompts=len(prompts),
            n=request.n,
            usage=UsageCounter(
                show_cached=context.server.enable_prompt_tokens_details,
                show_metrics=(
                    context.server.enable_per_request_metrics and request.n * len(prompts) == 1
                ),
            ),
            usage_at_end=at_end,
            usage_in_chunks=in_chunks,
            num_top_logprobs=num_shown(request, request.logprobs),
            text=context.token_text(request),
            skip_special_tokens=request.skip_special_tokens,
            echo=request.echo,
            show_token_ids=request.return_token_ids,
            show_prompt_logprobs=request.prompt_logprobs is not None,
            keep_text=context.server.enable_log_outputs,
        )
        return Job(
            request_id=name,
            prompts=prompts,
            params=params,
            reply=reply,
            stream=request.stream,
            priority=request.priority,
            cache_salt=request.cache_salt,
            headers=headers,
        )

    def _max_tokens(self, request: CompletionRequest) -> int:
        max_tokens = request.max_tokens
        if max_tokens is None:
            max_tokens = default_max_tokens(self._context.defaults)
            return DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens
        if max_tokens < 0 or (max_tokens == 0 and not request.echo):
            raise InvalidParameter(
                f"max_tokens must be at least 1 (or 0 with echo), got {max_tokens}. "
                f"(parameter=max_tokens, value={max_tokens})",
                param="max_tokens",
            )
        return max_tokens

    def _params(self, request: CompletionRequest) -> SamplingParams | BeamSearchParams:
        refuse_budget(request.thinking_token_budget, "is for chats: completions are not read")
        if request.use_beam_search:
            self._check_beam_search(request)
            return beam_search_params(
                request, self._context.defaults, max_tokens=self._max_tokens(request)
            )
        prompt_logprobs = request.prompt_logprobs
        if request.echo and request.logprobs is not None:
            prompt_logprobs = max(request.logprobs, prompt_logprobs or 0)
        return sampling_params(
            request,
            self._context.defaults,
            max_tokens=self._max_tokens(request),
            logprobs=request.logprobs,
            prompt_logprobs=prompt_logprobs,
        )

    def _check_beam_search(self, request: CompletionRequest) -> None:
        if request.stream:
            raise InvalidParameter(
                "Streaming is not available with beam search: its outputs are known at the end. "
                "(parameter=stream)",
                param="stream",
            )
        if request.echo and request.logprobs is not None:
            raise InvalidParameter(
                "`echo` with `logprobs` is not supported with beam search. (parameter=echo)",
                param="echo",
            )


def read_prompts(value: Any, *, add_special_tokens: bool, max_prompts: int) -> list[Prompt]:
    """`prompt` of a request: text, token ids, or a list of either (which may be mixed).

    Raises:
        InvalidParameter: something else, empty, or too many.
    """
    if isinstance(value, str):
        return [TextPrompt(value, add_special_tokens)]
    assert isinstance(value, list)
    if not value:
        raise _invalid("prompt", "must not be an empty list")
    if _as_id(value[0]) is not None:
        return [_tokens(value, "prompt")]
    if len(value) > max_prompts:
        raise _invalid("prompt", f"may hold at most {max_prompts} prompts, got {len(value)}")
    prompts: list[Prompt] = []
    for index, item in enumerate(value):
        if isinstance(item, str):
            prompts.append(TextPrompt(item, add_special_tokens))
        elif isinstance(item, list):
            prompts.append(_tokens(item, f"prompt[{index}]"))
        else:
            raise _invalid(f"prompt[{index}]", "must be a string or a list of token ids")
    return prompts


def _as_id(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():  # as everywhere: `octavo/api/body.py`
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _tokens(ids: list[Any], place: str) -> TokensPrompt:
    if not ids:
        raise _invalid(place, "must not be an empty list")
    token_ids: list[int] = []
    for index, value in enumerate(ids):
        token_id = _as_id(value)
        if token_id is None:
            raise _invalid(f"{place}[{index}]", "must be a token id (an integer)")
        token_ids.append(token_id)
    return TokensPrompt(token_ids)


def _invalid(place: str, rule: str) -> InvalidParameter:
    return InvalidParameter(f"{place} {rule}.", param=place)
