"""The two kinds of prompt the engine takes: text, and token ids.

Made in: `octavo/api`, `octavo/llm.py`. Read by: `octavo/frontend/input_processor.py`.
Runs in: API process, or the user's process offline.
Knows nothing of: tokenizers, chat templates, HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class TextPrompt(msgspec.Struct, frozen=True):
    """A prompt as text.

    `add_special_tokens` asks the tokenizer for its BOS and the like; a rendered chat template
    already contains them, so chats pass False. `cache_salt` keeps its prefix apart from prompts
    that do not have the same.
    """

    text: str
    add_special_tokens: bool = True
    cache_salt: str | None = None


class TokensPrompt(msgspec.Struct, frozen=True):
    """A prompt as token ids, taken as they are.

    `text`, if given, is echoed as `RequestOutput.prompt` and not looked at otherwise; `cache_salt`
    as above.
    """

    token_ids: Sequence[int]
    text: str | None = None
    cache_salt: str | None = None


Prompt = TextPrompt | TokensPrompt
