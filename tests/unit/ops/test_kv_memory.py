"""The memory of the KV cache."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.errors import StartupError
from octavo.ops.backend import KVPool
from octavo.ops.kv_memory import KVMemory
from octavo.ops.prefault import PIECE_BYTES, prefault_end

ADDRESS = 1 << 30
BYTES_PER_BLOCK = PIECE_BYTES // 4


class FakeLibrary:
    """Notes what it is told, and has so much memory."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.calls: list[tuple[Any, ...]] = []

    def map_memory(self, size: int) -> int | None:
        self.calls.append(("map", size))
        return ADDRESS if size <= self.size else None

    def ov_prefault_reached(self, handle: int) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append((name.removeprefix("ov_"), *arguments))
            return 1

        return call


def test_blocks_are_touched_ahead_between_steps_and_the_thread_ends_before_the_memory_goes() -> (
    None
):
    library = FakeLibrary(1 << 40)
    made: Any = library
    memory = KVMemory(made, KVPool(1000, 16, BYTES_PER_BLOCK, []))
    assert memory.address == ADDRESS
    memory.begin_step()
    memory.prefault(9)
    memory.begin_step()
    memory.begin_step()
    memory.close()
    begin = 3 * PIECE_BYTES
    end = prefault_end(9 * BYTES_PER_BLOCK, 1000 * BYTES_PER_BLOCK)
    assert library.calls == [
        ("map", 1000 * BYTES_PER_BLOCK),
        ("prefault_create", ADDRESS, b"octavo-prefault"),
        ("prefault_ask", 1, begin, end),
        ("prefault_pause", 1),
        ("prefault_destroy", 1),
        ("memory_unmap", ADDRESS, 1000 * BYTES_PER_BLOCK),
    ]


def test_memory_that_cannot_be_had_is_a_sentence_with_a_remedy() -> None:
    made: Any = FakeLibrary(0)
    with pytest.raises(StartupError, match=r"KV cache of 0\.49 GiB .*--kv-cache-memory-bytes"):
        KVMemory(made, KVPool(1000, 16, BYTES_PER_BLOCK, []))
