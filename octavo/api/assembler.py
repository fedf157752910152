"""The state machine between engine outputs and what a client sees of them.

`ChoiceAssembler` takes the outputs of one choice and gives events. A stream sends the events one
by one; a whole reply is their sum (`WholeChoice`). There is no second path.

Runs in: API process. Owns: what a choice has said so far. Knows nothing of: wire formats, HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from octavo.outputs import CompletionOutput, PositionLogprobs


class ContentDelta(msgspec.Struct, gc=False):
    """New text and the tokens it came from. Text may be empty while a character or a stop string
    is incomplete."""

    text: str
    token_ids: list[int]
    logprobs: Sequence[PositionLogprobs] | None = None


class Finish(msgspec.Struct, gc=False):
    """The choice has ended; the last event, exactly once."""

    reason: str
    stop_reason: int | str | None = None


Event = ContentDelta | Finish


class ChoiceAssembler:
    """Events of one choice."""

    __slots__ = ("is_finished", "num_tokens")

    def __init__(self) -> None:
        self.num_tokens = 0
        self.is_finished = False

    def push(self, output: CompletionOutput) -> list[Event]:
        """Takes what is new in a choice; gives the events in order."""
        assert not self.is_finished, "output after the end of a choice"
        events: list[Event] = []
        if output.text or output.token_ids:
            self.num_tokens += len(output.token_ids)
            events.append(ContentDelta(output.text, output.token_ids, output.logprobs))
        if output.finish_reason is not None:
            self.is_finished = True
            events.append(Finish(output.finish_reason, output.stop_reason))
        return events


class WholeChoice:
    """The sum of one choice's events."""

    __slots__ = ("_texts", "finish_reason", "logprobs", "stop_reason", "token_ids")

    def __init__(self) -> None:
        self._texts: list[str] = []
        self.token_ids: list[int] = []
        self.logprobs: list[PositionLogprobs] = []
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self._texts)

    def add(self, event: Event) -> None:
        """Takes the next event."""
        if isinstance(event, ContentDelta):
            self._texts.append(event.text)
            self.token_ids += event.token_ids
            self.logprobs += event.logprobs or ()
        else:
            self.finish_reason = event.reason
            self.stop_reason = event.stop_reason
