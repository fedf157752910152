"""The chat template of a served model: `--chat-template`, else the ones its tokenizer came with.

Neighbours: `octavo/launch/front_end.py`, `octavo/launch/offline.py` (callers). Runs in: API
process, or the user's process offline. Owns: nothing. Knows nothing of: requests, HTTP.
"""

from __future__ import annotations

from octavo.config.engine import ModelConfig
from octavo.tokenizer.chat_template import ChatTemplate
from octavo.tokenizer.tokenizer import Tokenizer


def chat_template_of(model: ModelConfig, tokenizer: Tokenizer | None) -> ChatTemplate | None:
    """None where there is no template, or no tokenizer to use one with.

    Raises:
        ConfigError: the given template has a syntax error. A model's own is compiled with the first
            chat: a model whose template is broken still completes texts.
    """
    if tokenizer is None:
        return None
    if model.chat_template is not None:
        template = ChatTemplate(model.chat_template, tokenizer.special_tokens)
        template.check()
        return template
    if not tokenizer.chat_templates:
        return None
    return ChatTemplate(tokenizer.chat_templates, tokenizer.special_tokens)
