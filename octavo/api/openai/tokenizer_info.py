"""`GET /tokenizer_info` (`--enable-tokenizer-info-endpoint`): what tokenizer_config.json would say.

Clients that tokenise through the server ask for its special tokens and its template.
Runs in: API process, event loop. Owns: the shape of the answer. Knows nothing of: the core.
"""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.api.asgi import Receive, Scope, Send, respond
from octavo.api.endpoint import Operation
from octavo.errors import Unauthorized
from octavo.frontend.async_llm import AsyncLLM


class AddedToken(msgspec.Struct):
    """A token that is matched in text as a whole; special ones are hidden in outputs."""

    content: str
    special: bool


class TokenizerInfoResponse(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The answer; special tokens that the model has not are left out."""

    tokenizer_class: str
    model_max_length: int
    vocab_size: int
    added_tokens_decoder: dict[str, AddedToken]  # id -> token
    chat_template: str | list[dict[str, str]] | None = None  # several are named
    bos_token: str | None = None
    eos_token: str | None = None
    unk_token: str | None = None
    sep_token: str | None = None
    pad_token: str | None = None
    cls_token: str | None = None
    mask_token: str | None = None


class TokenizerInfo:
    """The route.

    Args:
        llm: has the tokenizer.
    """

    def __init__(self, llm: AsyncLLM) -> None:
        self._llm = llm

    def operations(self) -> list[Operation]:
        """The route."""
        return [
            Operation(
                ("GET",),
                "/tokenizer_info",
                self._handle,
                "Special tokens and chat template",
                "tokenize",
                response=TokenizerInfoResponse,
                errors=(Unauthorized,),
            )
        ]

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        tokenizer = self._llm.tokenizer
        special: dict[str, Any] = dict(tokenizer.special_tokens)
        response = TokenizerInfoResponse(
            tokenizer_class="PreTrainedTokenizerFast",  # what transformers calls any tokenizer.json
            model_max_length=self._llm.max_model_len,
            vocab_size=tokenizer.vocab_size,
            added_tokens_decoder={
                str(token_id): AddedToken(content, is_special)
                for token_id, content, is_special in tokenizer.added_tokens()
            },
            chat_template=self._template(),
            **special,
        )
        await respond(send, 200, msgspec.json.encode(response))

    def _template(self) -> str | list[dict[str, str]] | None:
        given = self._llm.model_config.chat_template
        named = {"default": given} if given is not None else self._llm.tokenizer.chat_templates
        if set(named) <= {"default"}:
            return named.get("default")
        return [{"name": name, "template": template} for name, template in named.items()]
