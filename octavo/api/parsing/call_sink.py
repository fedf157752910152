"""What a call says while it is read: `CallSink` makes pieces of it.

Runs in: API process. Owns: when a call is announced. Knows nothing of: notations, marks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from octavo.api.parsing.pieces import Piece, ToolCallArguments, ToolCallStart
from octavo.api.parsing.reader import Malformed

#: a model that writes more than this has not written a name
MAX_NAME_CHARACTERS = 256


class CallSink:
    """One call of a reply.

    Args:
        index: of the call in the reply.
        emit: takes the pieces.
        on_start: called when the call is certain, before its first piece.
        on_reject: called when the text can be no call any more, though it may still be well-formed.
        schemas: parameters of the request's tools by name.
        only_known: names of other tools make the text no call.
        new_id: makes an id where the text has none; None: the server does.
    """

    __slots__ = (
        "_emit", "_held", "_new_id", "_on_reject", "_on_start", "call_id", "has_arguments", "index",
        "is_rejected", "is_started", "name", "only_known", "schemas",
    )  # fmt: skip

    def __init__(
        self,
        index: int,
        schemas: Mapping[str, Any],
        *,
        emit: Callable[[Piece], None],
        on_start: Callable[[], None],
        on_reject: Callable[[], None],
        only_known: bool,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self.index = index
        self.schemas = schemas
        self.only_known = only_known
        self.name: str | None = None
        self.call_id: str | None = None
        #: the client knows of the call
        self.is_started = False
        #: its arguments are complete
        self.has_arguments = False
        self.is_rejected = False
        self._emit = emit
        self._on_start = on_start
        self._on_reject = on_reject
        self._new_id = new_id
        self._held: list[str] = []

    def set_name(self, name: str) -> None:
        """The name is whole.

        Raises:
            Malformed: it is no name.
        """
        if not name or len(name) > MAX_NAME_CHARACTERS:
            raise Malformed
        self.name = name
        if self.only_known and name not in self.schemas:
            self.reject()

    def reject(self) -> None:
        """The text is no call. Who reads it goes on to its end."""
        if not self.is_rejected:
            assert not self.is_started, "a call that was announced is rejected"
            self.is_rejected = True
            self._held = []
            self._on_reject()

    def start(self) -> None:
        """Announces the call, if its name is known by now."""
        if self.name is None or self.is_started or self.is_rejected:
            return
        self.is_started = True
        self._on_start()
        if self.call_id is None and self._new_id is not None:
            self.call_id = self._new_id()
        self._emit(ToolCallStart(self.index, self.name, self.call_id))
        if self._held:
            self._emit(ToolCallArguments(self.index, "".join(self._held)))
            self._held = []

    def arguments(self, text: str) -> None:
        """The next characters of the arguments; held until the call is announced."""
        if not text or self.is_rejected:
            return
        if self.is_started:
            self._emit(ToolCallArguments(self.index, text))
        else:
            self._held.append(text)

    def end(self) -> None:
        """The call is complete; one without arguments has an empty object.

        Raises:
            Malformed: it is no call, or has no name.
        """
        if self.is_rejected or self.name is None:
            raise Malformed
        if not self.has_arguments:
            if self.only_known:
                raise Malformed
            self.arguments("{}")
            self.has_arguments = True
        self.start()
