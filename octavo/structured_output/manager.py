"""The seam at which grammars join the engine: an object with a no-op default.

The scheduler calls these methods at fixed points of a request's life and of a step; it contains no
branch on whether a request has a grammar.

Called by: `octavo/core/scheduler.py`. Runs in: EngineCore.
Knows nothing of: blocks, budgets, sockets.
"""

from __future__ import annotations

from typing import Protocol

from octavo.messages.engine import EngineCoreRequest
from octavo.messages.step import GrammarStep


class StructuredOutputManager(Protocol):
    """Grammars of the requests in the engine."""

    def add(self, request: EngineCoreRequest) -> None:
        """A request has arrived; a compile may start in the background."""

    def constrains(self, request_id: str) -> bool:
        """True if the request has a grammar: its masks depend on the tokens before."""

    def is_ready(self, request_id: str) -> bool:
        """False while the request's grammar is being compiled: others are admitted before it."""

    def masks(self, request_ids: list[str]) -> GrammarStep | None:
        """Masks for those of `request_ids` (which sample in this step) that have a grammar."""

    def accept(self, request_id: str, token_ids: list[int]) -> bool:
        """Advances a request's grammar by its new tokens; True if the request must end now."""

    def forget(self, request_id: str) -> None:
        """The request has ended."""


class NoStructuredOutput:
    """No request has a grammar."""

    def add(self, request: EngineCoreRequest) -> None:
        pass

    def constrains(self, request_id: str) -> bool:
        return False

    def is_ready(self, request_id: str) -> bool:
        return True

    def masks(self, request_ids: list[str]) -> GrammarStep | None:
        return None

    def accept(self, request_id: str, token_ids: list[int]) -> bool:
        return False

    def forget(self, request_id: str) -> None:
        pass
