"""Text of a token stream, as soon as whole characters are there.

The library's own DecodeStream decodes a window of tokens twice per token, and repeats the prompt
when the prompt ends inside a character; joining bytes needs no window and no look back.

Runs in: the API process. Owns: the unfinished character of one stream.
Knows nothing of: stop strings, requests.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from octavo.tokenizer.token_bytes import TokenBytes

_new_utf8_decoder = codecs.getincrementaldecoder("utf-8")
_LONGEST_UNFINISHED = 3  # bytes of a UTF-8 character that lacks its last one


class DecodeStream:
    """Incremental detokenisation of one output.

    The prompt is never repeated. If it ends inside a character, the first tokens may complete it,
    and the whole character then belongs to the output. Bytes that cannot be UTF-8 become U+FFFD; an
    unfinished character at the end has no text.

    Args:
        token_bytes: of the tokenizer.
        prompt_ids: what comes before the stream.
        hidden_ids: tokens that have no text (special tokens, when they are skipped).
    """

    __slots__ = (
        "_decoder",
        "_hidden_ids",
        "_is_between_characters",
        "_num_spaces_to_drop",
        "_token_bytes",
        "_whole_texts",
    )

    def __init__(
        self, token_bytes: TokenBytes, prompt_ids: Sequence[int], hidden_ids: AbstractSet[int]
    ) -> None:
        self._token_bytes = token_bytes
        self._whole_texts = token_bytes.whole_texts
        self._hidden_ids = hidden_ids
        self._decoder = _new_utf8_decoder(errors="replace")
        self._num_spaces_to_drop = 0 if prompt_ids else token_bytes.num_leading_spaces_dropped
        tail = b""
        for token_id in reversed(prompt_ids):
            if len(tail) >= _LONGEST_UNFINISHED:
                break
            if token_id not in hidden_ids:
                tail = token_bytes[token_id] + tail
        self._decoder.decode(tail)  # leaves only the unfinished character in the decoder
        self._is_between_characters = self._is_decoder_empty() and not self._num_spaces_to_drop

    def step(self, token_id: int) -> str:
        """Text that this token completes; empty while a character is unfinished."""
        if token_id in self._hidden_ids:
            return ""
        if self._is_between_characters:
            whole = self._whole_texts[token_id]
            if whole is not None:  # nearly always: nothing to join
                return whole
        text = self._decoder.decode(self._token_bytes[token_id])
        if self._num_spaces_to_drop and text:
            stripped = text[: self._num_spaces_to_drop].lstrip(" ")
            text, self._num_spaces_to_drop = stripped + text[self._num_spaces_to_drop :], 0
        self._is_between_characters = self._is_decoder_empty() and not self._num_spaces_to_drop
        return text

    def _is_decoder_empty(self) -> bool:
        return not self._decoder.getstate()[0]
