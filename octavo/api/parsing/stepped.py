"""`SteppedParser`: what parsers that are generators over a `Reader` share.

Runs in: API process. Owns: the text of a reply and what was found in it since the last piece of
text. Knows nothing of: formats.
"""

from __future__ import annotations

from octavo.api.parsing.pieces import Piece, merged
from octavo.api.parsing.reader import Reader, Steps


class SteppedParser:
    """A `ReplyParser`, but for its steps: they read `_reader` and add to `_out`."""

    def __init__(self) -> None:
        self._reader = Reader()
        self._out: list[Piece] = []
        self._steps: Steps[None]

    def _begin(self, steps: Steps[None]) -> None:
        """Takes the steps up to where they need text; what they use is there by now."""
        self._steps = steps
        next(steps)

    def feed(self, text: str) -> list[Piece]:
        """See `ReplyParser`."""
        self._reader.add(text)
        return self._go_on()

    def finish(self) -> list[Piece]:
        """See `ReplyParser`."""
        self._reader.end()
        return self._go_on()

    def _go_on(self) -> list[Piece]:
        next(self._steps, None)
        out, self._out = self._out, []
        return merged(out)
