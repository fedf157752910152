"""What a loader hands over: the library's tokenizer and what it does not know itself.

Made in: `gguf_tokenizer.py`, `folder_tokenizer.py`. Read by: `tokenizer.py`.
Runs in: the API process. Knows nothing of: files.
"""

from __future__ import annotations

from typing import Any

import msgspec
import tokenizers


class LoadedTokenizer(msgspec.Struct, frozen=True):
    """`special_tokens` has the names chat templates use: bos_token, eos_token, unk_token, ...;
    `chat_templates` the templates by name, the main one being `default`; `response_template` is
    what transformers reads replies by."""

    backend: tokenizers.Tokenizer
    special_tokens: dict[str, str] = {}
    chat_templates: dict[str, str] = {}
    response_template: dict[str, Any] | None = None
