"""The command line runs inside the test's process here: it must leave that as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


class NoSignals:
    """Stands in for StartSignals: the test's process keeps its handlers."""


@pytest.fixture(autouse=True)
def process_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No signal is taken over, and the garbage collector is on afterwards."""
    monkeypatch.setattr("octavo.transport.start_signals.StartSignals", NoSignals)
    yield
    gc.enable()
