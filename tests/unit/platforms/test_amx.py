"""Asking for tile registers: an answer everywhere, the same each time."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from octavo.platforms.amx import tiles_granted
from octavo.platforms.cpu import ISA_FLAGS, cpu_facts


@pytest.fixture(autouse=True)
def asked_anew() -> None:
    tiles_granted.cache_clear()


def test_other_processors_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="aarch64"))
    assert not tiles_granted()


def test_asking_again_changes_nothing() -> None:
    first = tiles_granted()
    tiles_granted.cache_clear()
    assert tiles_granted() == first


def test_the_level_of_this_machine_agrees_with_the_kernels_answer() -> None:
    words = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    assert (cpu_facts().isa == "amx") == (ISA_FLAGS["amx"] <= words and tiles_granted())
