"""The model's tokens, and the plain bytes, as the grammar library wants them.

Runs in: the API process. Owns: which tokens are text. Knows nothing of: grammars, requests.
"""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Collection, Sequence
from typing import Protocol

from octavo.messages.grammar import NO_TEXT, Vocabulary

#: tokens between two pauses in which other threads may run
_TOKENS_PER_TURN = 256


class VocabularyTokenizer(Protocol):
    """What is needed of a tokenizer."""

    @property
    def special_ids(self) -> Collection[int]: ...

    @property
    def vocab_size(self) -> int: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def id_to_token(self, token_id: int) -> str | None: ...


def make_vocabulary(
    tokenizer: VocabularyTokenizer, vocab_size: int, eos_token_ids: Sequence[int]
) -> Vocabulary:
    """The tokens of a model; for a thread: it takes 3 us a token, in pieces of a millisecond.

    Args:
        vocab_size: columns of the logits, possibly more than there are tokens.
        eos_token_ids: what ends an output, at least one.
    """
    special = set(tokenizer.special_ids) | set(eos_token_ids)
    lens, tokens, num_tokens = array("I"), [], tokenizer.vocab_size
    for token_id in range(vocab_size):
        if token_id % _TOKENS_PER_TURN == 0:
            time.sleep(0)  # gives the interpreter to who waits for it
        token = b""
        if token_id in special:
            token = NO_TEXT + (tokenizer.id_to_token(token_id) or str(token_id)).encode()
        elif token_id < num_tokens:
            token = tokenizer.token_bytes(token_id)
        lens.append(len(token))
        tokens.append(token)
    return Vocabulary(lens.tobytes(), b"".join(tokens), list(eos_token_ids))


def byte_vocabulary(special_tokens: Sequence[str] = ()) -> Vocabulary:
    """One token per byte: enough to see whether a grammar is right.

    Args:
        special_tokens: names that grammars may use.
    """
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [NO_TEXT + name.encode() for name in ("<end>", *special_tokens)]
    return Vocabulary(
        struct.pack(f"={len(tokens)}I", *map(len, tokens)), b"".join(tokens), eos_token_ids=[256]
    )
