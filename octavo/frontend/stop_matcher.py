"""Finding stop strings in text that arrives in pieces.

One Knuth-Morris-Pratt automaton per stop string (Knuth, Morris, Pratt: Fast pattern matching in
strings, SIAM J. Comput. 6, 1977): linear time for any stop string and any text, and its state is
exactly how much of the text's end may yet become a stop string, which is what must be held back.

Runs in: API process. Owns: nothing. Knows nothing of: tokens, requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class StopMatch(NamedTuple):
    """A stop string found: `text[start:end]`, offsets in the whole text."""

    stop_string: str
    start: int
    end: int


class StopMatcher:
    """Watches a text for the first stop string.

    The result does not depend on how the text is cut into pieces: the match that ends first wins,
    of those with the same end the longest.
    """

    __slots__ = ("_automata", "_length", "num_held_back")

    def __init__(self, stop_strings: Sequence[str]) -> None:
        self._automata = [_Automaton(stop) for stop in stop_strings]
        self._length = 0
        #: characters at the end of the text that may be the beginning of a stop string
        self.num_held_back = 0

    def feed(self, piece: str, *, is_counted: bool = True) -> StopMatch | None:
        """Appends `piece` to the text; returns the first match that ends in it.

        With `is_counted` False, matches that end in this piece are passed over (tokens that
        `min_tokens` demands cannot end a request). After a match the matcher must not be fed again.
        """
        best: StopMatch | None = None
        held = 0
        base = self._length
        for automaton in self._automata:
            end = automaton.feed(piece, is_counted)
            if end:
                stop = automaton.stop
                match = StopMatch(stop, base + end - len(stop), base + end)
                if best is None or (match.end, match.start) < (best.end, best.start):
                    best = match
            elif automaton.state > held:
                held = automaton.state
        self._length = base + len(piece)
        self.num_held_back = held
        return best


class _Automaton:
    """`state` is the length of the longest proper prefix of `stop` that the text ends with.

    The table of fallbacks grows with the longest state there was: a long stop string costs nothing
    (times `n` outputs) unless the text comes near it.
    """

    __slots__ = ("_fallback", "state", "stop")

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.state = 0
        # [i]: length of the longest proper prefix of stop[:i + 1] that is also its suffix
        self._fallback = [0]

    def feed(self, piece: str, is_counted: bool) -> int:
        """Returns the offset in `piece` after the first match, 0 if there is none."""
        stop, state = self.stop, self.state
        if state == 0 and stop[0] not in piece:
            return 0
        fallback = self._fallback
        for end, char in enumerate(piece, 1):
            while state and stop[state] != char:
                state = fallback[state - 1]
            if stop[state] == char:
                state += 1
                if state > len(fallback):
                    self._extend()
                if state == len(stop):
                    if is_counted:
                        return end
                    state = fallback[state - 1]
        self.state = state
        return 0

    def _extend(self) -> None:
        """Computes the next entry of the table."""
        stop, fallback = self.stop, self._fallback
        i = len(fallback)
        length = fallback[i - 1]
        while length and stop[i] != stop[length]:
            length = fallback[length - 1]
        if stop[i] == stop[length]:
            length += 1
        fallback.append(length)
