"""`POST /v1/chat/completions/batch`: several conversations with the same options, one choice each.

Neighbours: `octavo/api/openai/chat.py` (makes a job of each conversation).
Runs in: API process, event loop. Owns: how several replies become one.
Knows nothing of: templates, sampling, the core.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec

from octavo.api.asgi import Receive, Scope, Send
from octavo.api.body import parse_request, read_json_body
from octavo.api.endpoint import Operation
from octavo.api.generation import Reply
from octavo.api.openai.chat import ChatCompletions
from octavo.api.openai.protocol import (
    HAS_ITEMS,
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionTokensDetails,
    Messages,
    PromptTokensDetails,
    Usage,
)
from octavo.api.openai.route import RouteContext, response_id, unknown_field_headers
from octavo.api.openai.unsupported import KNOWN, refuse_unsupported
from octavo.api.sse import ServerEvent
from octavo.errors import (
    EngineError,
    InvalidParameter,
    ModelNotFound,
    Overloaded,
    RequestError,
    Unauthorized,
    UnsupportedFeature,
)
from octavo.outputs import RequestOutput


class BatchChatCompletionRequest(ChatCompletionRequest, kw_only=True):
    """Body of `POST /v1/chat/completions/batch`: the fields of a chat for all its conversations."""

    messages: Annotated[list[Messages], HAS_ITEMS]  # type: ignore[assignment]


#: field -> the only values that can be served
_FIXED: dict[str, tuple[object, ...]] = {
    "stream": (False,),
    "n": (1,),
    "use_beam_search": (False,),
    "tools": (None, []),
    "prompt_logprobs": (None,),
}


class ChatBatch:
    """The route.

    Args:
        context: the engine and the ways to it.
        chat: what answers one conversation.
    """

    def __init__(self, context: RouteContext, chat: ChatCompletions) -> None:
        self._context = context
        self._chat = chat

    def operations(self) -> list[Operation]:
        """The routes."""
        return [
            Operation(
                ("POST",),
                "/v1/chat/completions/batch",
                self._handle,
                "Answer several conversations, one choice each",
                "chat",
                request=BatchChatCompletionRequest,
                response=ChatCompletionResponse,
                errors=(RequestError, Unauthorized, ModelNotFound, EngineError, Overloaded),
            )
        ]

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_json_body(scope, receive)
        parsed = parse_request(
            body, BatchChatCompletionRequest, also_known=KNOWN, check_fields=refuse_unsupported
        )
        request = parsed.request
        name = response_id("chatcmpl", scope, request)
        self._check(request)
        headers = unknown_field_headers(parsed.unknown_fields, name)
        jobs = []
        for conversation in _conversations(request):
            jobs.append(await self._chat.job(conversation, name, headers))
            await asyncio.sleep(0)  # others' turn: rendering a thousand takes a while
        job = msgspec.structs.replace(
            jobs[0],
            prompts=[prompt for job in jobs for prompt in job.prompts],
            reply=_BatchReply([job.reply for job in jobs]),
        )
        await self._context.generator.run(job, scope, receive, send)

    def _check(self, request: BatchChatCompletionRequest) -> None:
        for field, values in _FIXED.items():
            value = getattr(request, field)
            if value not in values:
                raise UnsupportedFeature(
                    f"Batches of conversations do not support {field}; send the conversations "
                    f"one by one to /v1/chat/completions. (parameter={field})",
                    param=field,
                )
        limit = self._context.server.max_completion_prompts
        if not 0 < len(request.messages) <= limit:
            raise InvalidParameter(
                f"messages must hold 1 to {limit} conversations, got {len(request.messages)}. "
                "(parameter=messages)",
                param="messages",
            )


def _conversations(request: BatchChatCompletionRequest) -> list[ChatCompletionRequest]:
    options = {
        field: getattr(request, field)
        for field in ChatCompletionRequest.__struct_fields__
        if field != "messages"
    }
    return [ChatCompletionRequest(messages=messages, **options) for messages in request.messages]


class _BatchReply:
    """Whole replies side by side (`Reply` of `octavo/api/generation.py`); there is no stream."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self._replies = replies

    def begin(self, prompt_token_ids: Sequence[list[int]]) -> None:
        """Takes the prompts as the engine sees them."""
        for reply, token_ids in zip(self._replies, prompt_token_ids, strict=True):
            reply.begin([token_ids])

    def chunks(self, prompt_index: int, output: RequestOutput) -> list[ServerEvent]:
        """Never asked for."""
        raise AssertionError("a batch of chats has no stream")

    def closing(self) -> list[ServerEvent]:
        """Never asked for."""
        raise AssertionError("a batch of chats has no stream")

    def add(self, prompt_index: int, output: RequestOutput) -> None:
        """Takes an output into the reply of its conversation."""
        self._replies[prompt_index].add(0, output)

    def whole(self) -> ChatCompletionResponse:
        """One response with one choice per conversation."""
        responses, choices = [], []
        for index, reply in enumerate(self._replies):
            response = reply.whole()
            assert isinstance(response, ChatCompletionResponse)
            (choice,) = response.choices
            choice.index = index
            responses.append(response)
            choices.append(choice)
        first = responses[0]
        return ChatCompletionResponse(
            id=first.id,
            created=first.created,
            model=first.model,
            choices=choices,
            usage=_total([response.usage for response in responses]),
            system_fingerprint=first.system_fingerprint,
        )

    def log_text(self) -> str:
        """All choices' text."""
        return "\n".join(reply.log_text() for reply in self._replies)


def _total(usages: Sequence[Usage]) -> Usage:
    total = Usage(
        sum(usage.prompt_tokens for usage in usages),
        sum(usage.total_tokens for usage in usages),
        sum(usage.completion_tokens for usage in usages),
    )
    details = [usage.prompt_tokens_details for usage in usages]
    shown = [d for d in details if isinstance(d, PromptTokensDetails)]
    if shown:
        total.prompt_tokens_details = PromptTokensDetails(sum(d.cached_tokens for d in shown))
    reasoning = [usage.completion_tokens_details for usage in usages]
    counted = [d for d in reasoning if isinstance(d, CompletionTokensDetails)]
    if counted:
        num_tokens = sum(d.reasoning_tokens for d in counted)
        total.completion_tokens_details = CompletionTokensDetails(num_tokens)
    return total
