"""`Choice`: what a rule decided and, where it is worth a line in the log, why.

Runs in: the API process, `LLM`. Knows nothing of: any particular rule.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Choice(NamedTuple, Generic[T]):
    """A value and the sentence that explains it; empty when the value is just what was given."""

    value: T
    reason: str = ""
