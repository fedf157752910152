"""What each token of the vocabulary says, and which tokens say a text.

Used by: `number_guard.py`, `reasoning_gate.py`. Runs in: EngineCore. Owns: nothing.
Knows nothing of: grammars, requests.
"""

from __future__ import annotations

import functools

import numpy as np

from octavo.messages.grammar import NO_TEXT, Vocabulary


class TokenTexts:
    """The tokens of a model.

    Args:
        vocabulary: of the model.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.lens = np.frombuffer(vocabulary.token_lens, np.uint32).astype(np.int64)
        self.ends = np.cumsum(self.lens)
        self.bytes = vocabulary.token_bytes
        self.eos_token_ids = vocabulary.eos_token_ids
        self._id_to_bytes: dict[int, bytes] = {}  # of tokens that were asked for

    def bytes_of(self, token_id: int) -> bytes:
        """The bytes of a token; of one that is no text, a byte that no text has, and its name."""
        text = self._id_to_bytes.get(token_id)
        if text is None:
            end = int(self.ends[token_id])
            text = self._id_to_bytes[token_id] = self.bytes[end - int(self.lens[token_id]) : end]
        return text

    def text_of(self, token_id: int) -> bytes:
        """The bytes of a token; of one that is no text, its name."""
        return self.bytes_of(token_id).removeprefix(NO_TEXT)

    @functools.lru_cache(64)  # noqa: B019  one object per process
    def ids_of(self, text: bytes) -> list[int]:
        """Tokens that are the text, or no text and have that name."""
        found = []
        for token in (text, NO_TEXT + text):
            place = self.bytes.find(token)
            while place >= 0:
                index = int(np.searchsorted(self.ends, place, side="right"))
                if self.ends[index] == place + len(token) and self.lens[index] == len(token):
                    found.append(index)
                place = self.bytes.find(token, place + 1)
        return found

    @functools.lru_cache(64)  # noqa: B019  one object per process
    def spell(self, text: bytes) -> list[int]:
        """Tokens that say a text: the longest at each place, one that is no text if it has the
        name.

        Raises:
            ValueError: no token says a byte of it.
        """
        spelled, place = [], 0
        while place < len(text):
            for end in range(len(text), place, -1):
                ids = self.ids_of(text[place:end])
                if ids:
                    spelled.append(ids[-1])
                    place = end
                    break
            else:
                raise ValueError(f"no token says {text[place : place + 1]!r}")
        return spelled
