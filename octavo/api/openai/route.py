"""What the generating routes of the OpenAI API share: identity, warnings, the ways to the engine.

Runs in: API process. Owns: nothing per request. Knows nothing of: prompts, wire formats.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from octavo.api.asgi import Scope
from octavo.api.endpoint import request_id
from octavo.api.generation import Generator
from octavo.api.openai.logprobs import TokenText
from octavo.api.openai.models import ServedModels
from octavo.api.openai.protocol import SamplingFields
from octavo.config.server import ServerConfig
from octavo.errors import InvalidParameter
from octavo.frontend.async_llm import AsyncLLM
from octavo.frontend.prompt import Prompt, TextPrompt, TokensPrompt

logger = logging.getLogger(__name__)

MAX_NAMED_FIELDS = 20
MAX_FIELD_NAME = 64
MAX_REQUEST_ID = 128


class RouteContext(msgspec.Struct, frozen=True):
    """What a generating route is made of."""

    llm: AsyncLLM
    generator: Generator
    models: ServedModels
    server: ServerConfig
    fingerprint: str

    @property
    def defaults(self) -> Mapping[str, float]:
        """The model's own sampling defaults."""
        return self.llm.model_config.default_sampling_params

    def token_text(self, request: SamplingFields) -> TokenText:
        """How the request wants tokens shown."""
        as_ids = request.return_tokens_as_token_ids
        if as_ids is None:
            as_ids = self.server.return_tokens_as_token_ids
        return TokenText(self.llm.tokenizer, as_ids=as_ids)


def response_id(prefix: str, scope: Scope, request: SamplingFields) -> str:
    """`<prefix>-<id>`; the body's `request_id` wins over `X-Request-Id`.

    Raises:
        InvalidParameter: the body's id could not be logged or sent as a header.
    """
    given = request.request_id
    if given is None:
        return f"{prefix}-{request_id(scope)}"
    if not 0 < len(given) <= MAX_REQUEST_ID or not (given.isascii() and given.isprintable()):
        raise InvalidParameter(
            f"request_id must be 1 to {MAX_REQUEST_ID} printable ASCII characters.",
            param="request_id",
        )
    return f"{prefix}-{given}"


def unknown_field_headers(unknown: list[str], name: str) -> list[tuple[bytes, bytes]]:
    """Tells client (header) and operator (log) which fields had no effect."""
    if not unknown:
        return []
    shown = ", ".join(
        ascii(n[:MAX_FIELD_NAME])[1:-1][:MAX_FIELD_NAME] for n in unknown[:MAX_NAMED_FIELDS]
    )
    if len(unknown) > MAX_NAMED_FIELDS:
        shown += ", ..."
    logger.warning("Request %s: unknown fields were ignored: %s", name, shown)
    return [(b"x-octavo-ignored-fields", shown.encode("ascii", "replace"))]


async def truncated(llm: AsyncLLM, prompt: Prompt, request: SamplingFields) -> Prompt:
    """The prompt cut to `truncate_prompt_tokens` (-1: what the window holds with one output token).

    `truncation_side` left keeps the end of the prompt.
    """
    limit = request.truncate_prompt_tokens
    if limit is None:
        return prompt
    if limit == 0:
        raise InvalidParameter(
            "truncate_prompt_tokens must be at least 1, or -1 for the whole window, got 0.",
            param="truncate_prompt_tokens",
        )
    if limit < 0:
        limit = llm.max_model_len - (request.max_tokens or 1)
    if limit >= llm.max_model_len:
        raise InvalidParameter(
            f"truncate_prompt_tokens={limit} must be less than max_model_len={llm.max_model_len}.",
            param="truncate_prompt_tokens",
        )
    limit = max(limit, 1)
    if isinstance(prompt, TextPrompt):
        ids = await llm.tokenize(prompt.text, add_special_tokens=prompt.add_special_tokens)
    else:
        ids = list(prompt.token_ids)
    if len(ids) <= limit:
        return prompt
    return TokensPrompt(ids[-limit:] if request.truncation_side == "left" else ids[:limit])
