"""Grammars and the vocabulary they are about, as they cross the process boundary.

Written by: `octavo/structured_output/grammar_text.py`, `octavo/structured_output/vocabulary.py`.
Read by: `octavo/structured_output/llguidance.py`.
Knows nothing of: requests' fields, tensors, HTTP.
"""

from __future__ import annotations

import msgspec

#: begins a token that is no text; the rest is its name
NO_TEXT = b"\xff"


class Grammar(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What an output must be, as the grammar library reads it.

    `kind` is `json` (a JSON schema), `regex` or `lark`; `is_json` says that what stands outside of
    quotes is JSON, or nearly so. Equal grammars are compiled once.
    """

    kind: str
    text: str
    is_json: bool = False


class Vocabulary(msgspec.Struct, array_like=True, gc=False):
    """The tokens as bytes, back to back.

    A token that is no text begins with `NO_TEXT`, a byte that no text has; an id without a token
    has no bytes, and no grammar allows it.
    """

    token_lens: bytes  # [vocab_size] uint32 of this machine's byte order
    token_bytes: bytes
    eos_token_ids: list[int]

    @property
    def vocab_size(self) -> int:
        """Columns of the logits."""
        return len(self.token_lens) // 4
