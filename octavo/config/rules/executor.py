"""Where the worker runs.

Runs in: the API process, `LLM`. Knows nothing of: processes.
"""

from __future__ import annotations

from octavo.config.rules.choice import Choice


def choose_executor(backend: str | None) -> Choice[str]:
    """`uni`: the worker lives in the engine process."""
    if backend == "mp":
        return Choice("uni", "executor uni instead of mp: one worker needs no process of its own")
    return Choice("uni")
