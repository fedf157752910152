"""A tokenizer small enough to predict: one token per byte, a few words, BOS and EOS."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

WORDS = [b" hello", b" world", b"DEF", b"ab", b"\xe2\x82", b"bc"]
BOS, EOS = 256, 257
FIRST_WORD = 258
VOCAB_SIZE = FIRST_WORD + len(WORDS)


class ByteTokenizer:
    """Ids 0..255 are bytes, then `<bos>`, `<eos>` and WORDS; encodes with the longest match."""

    def __init__(self) -> None:
        self.vocab_size = VOCAB_SIZE
        self.max_token_characters = 100  # none is longer
        self.bos_token_id: int | None = BOS
        self.eos_token_id: int | None = EOS
        self.bos_token: str | None = "<bos>"
        self.eos_token: str | None = "<eos>"
        self.special_tokens = {"bos_token": "<bos>", "eos_token": "<eos>"}
        self.special_ids = frozenset({BOS, EOS})
        self.chat_template: str | None = None
        self.chat_templates: dict[str, str] = {}
        self.num_encoded = 0  # calls of encode

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        self.num_encoded += 1
        ids = [BOS] if add_special_tokens else []
        data = text.encode()
        i = 0
        while i < len(data):
            if data.startswith(b"<bos>", i):
                ids.append(BOS)
                i += 5
                continue
            best, length = data[i], 1
            for number, word in enumerate(WORDS):
                if len(word) > length and data.startswith(word, i):
                    best, length = FIRST_WORD + number, len(word)
            ids.append(best)
            i += length
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        kept = [i for i in ids if not (skip_special_tokens and i in self.special_ids)]
        return b"".join(map(self.token_bytes, kept)).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        if token_id < 256:
            return bytes([token_id])
        if token_id in self.special_ids:
            return b"<bos>" if token_id == BOS else b"<eos>"
        return WORDS[token_id - FIRST_WORD]

    def added_tokens(self) -> list[tuple[int, str, bool]]:
        return [(BOS, "<bos>", True), (EOS, "<eos>", True)]

    def id_to_token(self, token_id: int) -> str:
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def token_to_id(self, token: str) -> int | None:
        data = token.encode()
        ids = (i for i in range(self.vocab_size) if self.token_bytes(i) == data)
        return next(ids, None)

    def decode_stream(
        self, prompt_ids: Sequence[int], skip_special_tokens: bool = True
    ) -> ByteDecodeStream:
        return ByteDecodeStream(self, prompt_ids, skip_special_tokens)


class ByteDecodeStream:
    def __init__(
        self, tokenizer: ByteTokenizer, prompt_ids: Sequence[int], skip_special_tokens: bool
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for token_id in prompt_ids:
            self.step(token_id)

    def step(self, token_id: int, /) -> str:
        if self._skip_special_tokens and token_id in self._tokenizer.special_ids:
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))
