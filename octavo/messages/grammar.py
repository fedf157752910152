"""Grammars and the vocabulary they are about, as they cross the process boundary.

Written by: `octavo/structured_output/grammar_text.py`, `octavo/structured_output/vocabulary.py`.
Read by: `octavo/structured_output/llguidance.py`.
Knows nothing of: requests' fields, tensors, HTTP.
"""

from __future__ import annotations

import msgspec


class Grammar(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What an output must be, as the grammar library reads it.

    `kind` is `json` (a JSON schema), `regex` or `lark`. Equal grammars are compiled once.
    """

    kind: str
    text: str


class Vocabulary(msgspec.Struct, array_like=True, gc=False):
    """The tokens as bytes, back to back.

    A token that is no text begins with the byte 0xFF, which no text has; an id without a token has
    no bytes, and no grammar allows it.
    """

    token_lens: bytes  # [vocab_size] uint32 of this machine's byte order
    token_bytes: bytes
    eos_token_ids: list[int]

    @property
    def vocab_size(self) -> int:
        """Columns of the logits."""
        return len(self.token_lens) // 4
