"""The parsers of replies that the operator has named, or that the model's files tell.

Neighbours: `octavo/launch/application.py` (caller), `octavo/api/parsing` (the parsers).
Runs in: API process. Owns: nothing. Knows nothing of: requests, HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.config.engine import ModelConfig
from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from octavo.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from octavo.api.parsing.factory import ReplyParsers


def make_reply_parsers(
    server: ServerConfig, model: ModelConfig, tokenizer: Tokenizer | None
) -> ReplyParsers | None:
    """None where no parser is asked for.

    Raises:
        ConfigError: a parser or a plug-in is not there, or `auto` is not told.
    """
    if server.tool_call_parser is None and server.reasoning_parser is None:
        return None
    if tokenizer is None:
        raise ConfigError(
            "--tool-call-parser and --reasoning-parser read text, and the server runs without a "
            "tokenizer (--skip-tokenizer-init)"
        )
    # only for these flags: importing them costs start-up time
    from octavo.api.parsing.factory import ModelTexts, reply_parsers
    from octavo.api.parsing.names import load_plugin

    for flag, path in (
        ("--tool-parser-plugin", server.tool_parser_plugin),
        ("--reasoning-parser-plugin", server.reasoning_parser_plugin),
    ):
        if path:
            load_plugin(path, flag)
    names = map(tokenizer.id_to_token, tokenizer.special_ids)
    return reply_parsers(
        tool_name=server.tool_call_parser,
        reasoning_name=server.reasoning_parser,
        model=ModelTexts(
            chat_template=model.chat_template or tokenizer.chat_template,
            special_tokens=frozenset(name for name in names if name),
            response_template=tokenizer.response_template,
        ),
    )
