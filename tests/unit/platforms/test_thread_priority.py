from __future__ import annotations

import os
import threading

import pytest

from octavo.platforms.thread_priority import NICENESS, lower_thread_priority


def test_only_the_calling_thread_gives_way() -> None:
    found: list[int] = []

    def look() -> None:
        lower_thread_priority()
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [max(NICENESS, before)]
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before


def test_a_sandbox_that_forbids_it_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(*args: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", forbid)
    lower_thread_priority()
