"""The seam at which grammars join the engine: an object with a no-op default.

The scheduler calls these methods at fixed points of a request's life, the engine core asks for the
masks of a step; neither has a branch on what kind of grammar there is.

Called by: `octavo/core/scheduler.py`, `octavo/core/admission.py`, `octavo/core/engine_core.py`.
Implemented by: `request_grammars.py`. Runs in: EngineCore.
Knows nothing of: blocks, budgets, sockets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from octavo.messages.engine import EngineCoreRequest
from octavo.messages.grammar import Vocabulary
from octavo.messages.step import PendingMasks


class GrammarEnd(msgspec.Struct, frozen=True):
    """A request ends for its grammar: the output is complete, or `error` says what went wrong."""

    error: str | None = None
    is_request_error: bool = True  # False: our side


class GrammarFailure(msgspec.Struct, frozen=True):
    """A request whose grammar cannot be used."""

    request_id: str
    error: str
    is_request_error: bool = True  # False: our side


class StructuredOutputManager(Protocol):
    """Grammars of the requests in the engine."""

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        """The tokens; comes before the first request with a grammar."""

    def add(self, request: EngineCoreRequest) -> None:
        """A request has arrived; a compile may start in the background."""

    def constrains(self, request_id: str) -> bool:
        """True if the request has a grammar: its masks depend on the tokens before."""

    def is_ready(self, request_id: str) -> bool:
        """False while the request's grammar is being compiled: others are admitted before it."""

    def take_failures(self) -> Sequence[GrammarFailure]:
        """Requests whose compile has failed. They will never be ready, and must end."""

    def begin_masks(self) -> None:
        """All requests of a step have been advanced: their next masks may be begun, as a rule for
        the step that follows."""

    def masks(self, request_ids: Sequence[str]) -> PendingMasks:
        """Masks of what may be drawn next, of requests that all have grammars."""

    def accept(self, request_id: str, token_ids: Sequence[int]) -> GrammarEnd | None:
        """Advances a request's grammar by its new tokens; not None if it must end now."""

    def forget(self, request_id: str) -> None:
        """The request has ended."""

    def close(self) -> None:
        """Ends threads. Idempotent."""


class NoStructuredOutput:
    """No request has a grammar."""

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        pass

    def add(self, request: EngineCoreRequest) -> None:
        pass

    def constrains(self, request_id: str) -> bool:
        return False

    def is_ready(self, request_id: str) -> bool:
        return True

    def take_failures(self) -> Sequence[GrammarFailure]:
        return ()

    def begin_masks(self) -> None:
        pass

    def masks(self, request_ids: Sequence[str]) -> PendingMasks:
        raise AssertionError("no request has a grammar")

    def accept(self, request_id: str, token_ids: Sequence[int]) -> GrammarEnd | None:
        return None

    def forget(self, request_id: str) -> None:
        pass

    def close(self) -> None:
        pass
