"""Each token as the bytes it stands for.

Text is cut into tokens by bytes, not by characters, so bytes are what a stream of tokens can be
joined from at any moment without looking back; logprobs report them too.

Runs in: the API process. Owns: the meaning of the library's decoders, for single tokens.
Knows nothing of: requests, streams.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import tokenizers

from octavo.errors import ConfigError

_BYTE_TOKEN = re.compile(r"^<0x([0-9A-Fa-f]{2})>$")


def byte_level_alphabet() -> dict[str, int]:
    """Character -> byte of byte-level vocabularies: printable Latin-1 stands for itself, the other
    bytes for characters from 256 on. Source: GPT-2's encoder.py, bytes_to_unicode."""
    alphabet: dict[str, int] = {}
    shift = 0
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or 0xAE <= byte <= 0xFF:
            alphabet[chr(byte)] = byte
        else:
            alphabet[chr(256 + shift)] = byte
            shift += 1
    return alphabet


class TokenBytes:
    """Bytes of a tokenizer's tokens, computed once per token.

    Args:
        backend: the library's tokenizer; its decoder says how tokens are spelled.
        path: where it came from, for the error sentence.

    Raises:
        ConfigError: a decoder whose tokens have no bytes of their own.
    """

    def __init__(self, backend: tokenizers.Tokenizer, path: str) -> None:
        self._backend = backend
        self._known: dict[int, bytes] = {}
        #: `whole_text` by token id; reading an unknown id computes it
        self.whole_texts: Mapping[int, str | None] = _Computed(self.whole_text)
        self._alphabet: dict[str, int] | None = None
        self._replacements: list[tuple[str, str]] = []
        self._has_byte_tokens = False
        #: spaces that are dropped when a text begins with them (SentencePiece's prefix space)
        self.num_leading_spaces_dropped = 0
        for step in _decoder_steps(backend):
            self._read_step(step, path)

    def __getitem__(self, token_id: int) -> bytes:
        """Bytes of one token; none for an id without a token (padding of the embedding)."""
        known = self._known.get(token_id)
        if known is None:
            token = self._backend.id_to_token(token_id)
            known = b"" if token is None else self._spell(token)
            self._known[token_id] = known
        return known

    def whole_text(self, token_id: int) -> str | None:
        """The token's text if it is whole characters by itself, else None."""
        try:
            return self[token_id].decode()
        except UnicodeDecodeError:
            return None

    def _read_step(self, step: dict[str, Any], path: str) -> None:
        match step:
            case {"type": "ByteLevel"}:
                self._alphabet = byte_level_alphabet()
            case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
                self._replacements.append((old, new))
            case {"type": "Metaspace", "replacement": str(mark)}:
                self._replacements.append((mark, " "))
                if step.get("prepend_scheme") != "never":
                    self.num_leading_spaces_dropped = 1
            case {"type": "ByteFallback"}:
                self._has_byte_tokens = True
            case {"type": "Strip", "content": " ", "start": int(start), "stop": 0}:
                self.num_leading_spaces_dropped = start
            case {"type": "Fuse"}:
                pass
            case _:
                raise ConfigError(
                    f"{path} decodes tokens with {step.get('type')}, which is not supported for "
                    "generation; use a tokenizer of the byte-level or SentencePiece kind."
                )

    def _spell(self, token: str) -> bytes:
        if self._alphabet is not None:
            values = [self._alphabet.get(character) for character in token]
            # an added token may hold characters outside the alphabet: it is spelled as it is
            known = [value for value in values if value is not None]
            return bytes(known) if len(known) == len(values) else token.encode()
        for old, new in self._replacements:
            token = token.replace(old, new)
        if self._has_byte_tokens and (match := _BYTE_TOKEN.match(token)):
            return bytes([int(match[1], 16)])
        return token.encode()


class _Computed(dict[int, str | None]):
    """A dict that computes what is missing: reading what is there costs no call."""

    def __init__(self, compute: Callable[[int], str | None]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, token_id: int) -> str | None:
        value = self[token_id] = self._compute(token_id)
        return value


def _decoder_steps(backend: tokenizers.Tokenizer) -> list[dict[str, Any]]:
    """The decoder as a flat list of the library's own descriptions."""
    if backend.decoder is None:
        return [{"type": "no decoder"}]
    described: dict[str, Any] = json.loads(backend.decoder.__getstate__())
    if described["type"] == "Sequence":
        return list(described["decoders"])
    return [described]
