"""Keeps the numbers of a JSON output short.

JSON puts no limit on digits, and a model that has lost its way repeats them until its token limit.
After 20 digits in a row, or 2 of an exponent, no further digit is drawn, as long as the grammar
allows anything else; so a number that a schema wants that long can still be written.

Used by: `request_grammars.py`. Runs in: EngineCore. Owns: the place in the output.
Knows nothing of: grammars, requests.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from octavo.structured_output.token_texts import TokenTexts

MAX_DIGITS = 20
MAX_EXPONENT_DIGITS = 2
#: tokens that begin with more digits count as if they had so many
_MOST_LEADING = 8

Words = npt.NDArray[np.uint32]

_QUOTE, _BACKSLASH = ord('"'), ord("\\")


class DigitTokens:
    """Which tokens begin with how many digits.

    Args:
        tokens: of the model.
    """

    def __init__(self, tokens: TokenTexts) -> None:
        self._tokens = tokens
        self.bytes_of = tokens.bytes_of

    @functools.lru_cache(_MOST_LEADING)  # noqa: B019  one object per process
    def without_more_than(self, num_digits: int) -> Words:
        """Mask of the tokens that begin with at most `num_digits` digits."""
        lens = self._tokens.lens
        text = np.frombuffer(self._tokens.bytes + b"\0" * (_MOST_LEADING + 1), np.uint8)
        is_digit = (text >= ord("0")) & (text <= ord("9"))
        starts = self._tokens.ends - lens
        has_more = lens > num_digits
        for offset in range(num_digits + 1):
            has_more &= is_digit[starts + offset]
        bits = np.ones(-(-len(lens) // 32) * 32, np.uint8)
        bits[: len(lens)] = ~has_more
        return np.packbits(bits, bitorder="little").view(np.uint32)


class NumberGuard:
    """The place in one output.

    Args:
        tokens: shared by all outputs.
    """

    def __init__(self, tokens: DigitTokens) -> None:
        self._tokens = tokens
        self._is_text = self._is_escaped = self._is_exponent = False
        self._num_digits = 0

    def accept(self, token_id: int) -> None:
        """Takes the next token of the output."""
        text = self._tokens.bytes_of(token_id)
        if self._is_text and not self._is_escaped and b'"' not in text and b"\\" not in text:
            return  # as most tokens of an output are
        for byte in text:
            if self._is_text:
                if self._is_escaped:
                    self._is_escaped = False
                elif byte == _BACKSLASH:
                    self._is_escaped = True
                elif byte == _QUOTE:
                    self._is_text = False
            elif 0x30 <= byte <= 0x39:
                self._num_digits += 1
            else:
                self._num_digits = 0
                self._is_text = byte == _QUOTE
                self._is_exponent = byte in b"eE" or (self._is_exponent and byte in b"+-")

    @property
    def narrows(self) -> bool:
        """True if some token may have too many digits now."""
        return not self._is_text and self._num_left < _MOST_LEADING

    @property
    def _num_left(self) -> int:
        limit = MAX_EXPONENT_DIGITS if self._is_exponent else MAX_DIGITS
        return max(limit - self._num_digits, 0)

    def narrow(self, mask: Words) -> None:
        """Takes tokens with too many digits out of a mask, unless nothing else would be left."""
        if self.narrows:
            left = self._num_left
            narrowed = mask & self._tokens.without_more_than(left)
            if narrowed.any():
                mask[:] = narrowed
