"""Token ids to text, one request at a time, with stop strings.

Text is released only as whole characters. An output that is cut in the middle of a character
(`max_tokens`, abort) ends before that character: the incomplete bytes are dropped, in a stream and
in a whole reply alike. The result does not depend on how the tokens are cut into updates.

Neighbours: `octavo/tokenizer` (decode stream), `octavo/frontend/output_processor.py` (caller).
Runs in: API process. Owns: a request's output text. Knows nothing of: the core, HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from octavo.frontend.stop_matcher import StopMatcher


class DecodeStream(Protocol):
    """What a tokenizer gives for incremental decoding."""

    def step(self, token_id: int, /) -> str:
        """The text this token completes; "" while a character is incomplete."""


class Detokenizer:
    """Grows the text of one output and finds its end by stop strings.

    Args:
        stream: decodes the generated ids; it has seen the prompt.
        stop_strings: the output ends before the first of them.
        include_stop_str: the stop string stays in the output.
        min_tokens: a stop string that ends within this many tokens does not count.
    """

    __slots__ = (
        "_include_stop_str",
        "_matcher",
        "_min_tokens",
        "_num_dropped",
        "_num_tokens",
        "_step",
        "stop_string",
        "text",
    )

    def __init__(
        self,
        stream: DecodeStream,
        stop_strings: Sequence[str] = (),
        *,
        include_stop_str: bool = False,
        min_tokens: int = 0,
    ) -> None:
        self._step = stream.step
        self._matcher = StopMatcher(stop_strings) if stop_strings else None
        self._include_stop_str = include_stop_str
        self._min_tokens = min_tokens
        self._num_tokens = 0
        self._num_dropped = 0  # characters that were taken
        self.text = ""  # what was not taken
        self.stop_string: str | None = None  # the one that ended the output

    def feed(self, token_ids: Sequence[int], *, last_is_stop_token: bool = False) -> int:
        """Appends generated tokens.

        Args:
            token_ids: in order; fed after a stop string they are ignored.
            last_is_stop_token: the last one ended the request (EOS or a stop token id): it is part
                of the tokens, and of the text only with `include_stop_str`.

        Returns:
            How many of the tokens belong to the output: fewer than given if a stop string ended it.
        """
        if last_is_stop_token and not self._include_stop_str:
            num_text_tokens = len(token_ids) - 1
        else:
            num_text_tokens = len(token_ids)
        matcher = self._matcher
        if matcher is None:
            text, step = self.text, self._step
            for i in range(num_text_tokens):
                text += step(token_ids[i])
            self.text = text
            return len(token_ids)
        for i in range(num_text_tokens):
            self._num_tokens += 1
            piece = self._step(token_ids[i])
            if not piece:
                continue
            self.text += piece
            match = matcher.feed(piece, is_counted=self._num_tokens > self._min_tokens)
            if match is not None:
                self.stop_string = match.stop_string
                end = match.end if self._include_stop_str else match.start
                self.text = self.text[: end - self._num_dropped]
                return i + 1
        return len(token_ids)

    def take(self, is_finished: bool) -> str:
        """`visible_text`, which is forgotten then."""
        if self._matcher is None:
            text, self.text = self.text, ""
            return text
        text = self.visible_text(is_finished)
        self._num_dropped += len(text)
        self.text = self.text[len(text) :]
        return text

    def visible_text(self, is_finished: bool) -> str:
        """The text that can be given out and was not taken: all of it at the end, before that what
        cannot become part of a stop string."""
        if self._matcher is None or is_finished:
            return self.text
        return self.text[: len(self.text) - self._matcher.num_held_back]
