"""From the core's `TokenLogprobs` to the `Logprob` objects that callers see.

Runs in: API process. Owns: the text of single tokens (cached). Knows nothing of: requests, HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from octavo.messages.engine import TokenLogprobs
from octavo.outputs import Logprob, PositionLogprobs

#: stands for minus infinity (a masked token): JSON has no infinity, and clients compare with it
MIN_LOGPROB = -9999.0
CACHED_TOKEN_TEXTS = 65536


class LogprobsDecoder:
    """Gives candidates their text.

    Args:
        token_bytes: the bytes a token stands for (`Tokenizer.token_bytes`); None leaves
            `decoded_token` empty (no tokenizer).
    """

    def __init__(self, token_bytes: Callable[[int], bytes] | None) -> None:
        self._token_text: Callable[[int], str | None]
        if token_bytes is None:
            self._token_text = _no_text
        else:
            self._token_text = lru_cache(maxsize=CACHED_TOKEN_TEXTS)(
                lambda token_id: token_bytes(token_id).decode("utf-8", "replace")
            )

    def decode(self, position: TokenLogprobs) -> PositionLogprobs:
        """Candidates of one position: the chosen token first, then the most likely ones."""
        text = self._token_text
        decoded: PositionLogprobs = {}
        for token_id, logprob, rank in zip(
            position.token_ids, position.logprobs, position.ranks, strict=True
        ):
            if token_id not in decoded:  # the chosen token may be among the most likely ones
                decoded[token_id] = Logprob(max(logprob, MIN_LOGPROB), rank, text(token_id))
        return decoded

    def decode_all(self, positions: list[TokenLogprobs]) -> list[PositionLogprobs]:
        """`decode` of each position."""
        return [self.decode(position) for position in positions]

    def decode_prompt(self, positions: list[TokenLogprobs | None]) -> list[PositionLogprobs | None]:
        """`decode` of each prompt position; the first one has none."""
        return [None if position is None else self.decode(position) for position in positions]


def _no_text(token_id: int) -> None:
    return None
