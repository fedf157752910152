"""`POST /tokenize` and `POST /detokenize`: what the engine would see, and back.

Runs in: API process, event loop. Owns: nothing. Knows nothing of: the core.
"""

from __future__ import annotations

import msgspec

from octavo.api.asgi import Receive, Scope, Send, respond
from octavo.api.body import parse_request, read_json_body
from octavo.api.endpoint import Operation, request_id
from octavo.api.openai.chat_prompt import ChatPrompt
from octavo.api.openai.models import ServedModels
from octavo.api.openai.protocol import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeChatRequest,
    TokenizeCompletionRequest,
    TokenizeResponse,
)
from octavo.api.openai.route import unknown_field_headers
from octavo.errors import InvalidParameter, ModelNotFound, RequestError, Unauthorized
from octavo.frontend.async_llm import AsyncLLM

#: ids in one request, if the window is not larger: the event loop waits 0.5 s per million
MAX_DETOKENIZED = 131_072

TokenizeRequest = TokenizeCompletionRequest | TokenizeChatRequest


class Tokenize:
    """The two routes.

    Args:
        llm: has the tokenizer.
        models: the served names.
        prompt: renders messages.
    """

    def __init__(self, llm: AsyncLLM, models: ServedModels, prompt: ChatPrompt) -> None:
        self._llm = llm
        self._models = models
        self._prompt = prompt

    def operations(self) -> list[Operation]:
        """The routes."""
        errors = (RequestError, Unauthorized, ModelNotFound)
        return [
            Operation(
                ("POST",),
                "/tokenize",
                self._tokenize,
                "Token ids of a text or of rendered messages",
                "tokenize",
                request=(TokenizeCompletionRequest, TokenizeChatRequest),
                response=TokenizeResponse,
                errors=errors,
            ),
            Operation(
                ("POST",),
                "/detokenize",
                self._detokenize,
                "Text of token ids",
                "tokenize",
                request=DetokenizeRequest,
                response=DetokenizeResponse,
                errors=errors,
            ),
        ]

    async def _tokenize(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_json_body(scope, receive)
        is_chat = parse_request(body, _Form).request.messages is not None
        request: TokenizeRequest
        if is_chat:
            chat = parse_request(body, TokenizeChatRequest)
            request, unknown = chat.request, chat.unknown_fields
            self._models.check(request.model)
            text = self._prompt.render(request)
        else:
            plain = parse_request(body, TokenizeCompletionRequest)
            request, unknown = plain.request, plain.unknown_fields
            self._models.check(request.model)
            text = request.prompt
        tokens = await self._llm.tokenize(text, add_special_tokens=request.add_special_tokens)
        response = TokenizeResponse(len(tokens), self._llm.max_model_len, tokens)
        if request.return_token_strs:
            response.token_strs = [self._llm.tokenizer.id_to_token(i) or "" for i in tokens]
        headers = unknown_field_headers(unknown, request_id(scope))
        await respond(send, 200, msgspec.json.encode(response), headers=headers)

    async def _detokenize(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_json_body(scope, receive)
        parsed = parse_request(body, DetokenizeRequest)
        self._models.check(parsed.request.model)
        limit = max(MAX_DETOKENIZED, self._llm.max_model_len)
        if len(parsed.request.tokens) > limit:
            raise InvalidParameter(
                f"tokens has {len(parsed.request.tokens)} ids; at most {limit} become text in one "
                "request. Please send them in pieces.",
                param="tokens",
            )
        vocab_size = self._llm.model_config.vocab_size
        for index, token_id in enumerate(parsed.request.tokens):
            if not 0 <= token_id < vocab_size:
                raise InvalidParameter(
                    f"tokens[{index}]={token_id} is not in the vocabulary: ids go from 0 to "
                    f"{vocab_size - 1}.",
                    param=f"tokens[{index}]",
                )
        text = self._llm.tokenizer.decode(parsed.request.tokens, skip_special_tokens=False)
        headers = unknown_field_headers(parsed.unknown_fields, request_id(scope))
        await respond(send, 200, msgspec.json.encode(DetokenizeResponse(text)), headers=headers)


class _Form(msgspec.Struct):
    """Which of the two forms a body has."""

    messages: object = None
