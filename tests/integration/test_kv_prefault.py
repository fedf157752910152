"""Memory of the KV cache is there before it is used, and not much more of it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psutil

from octavo.ops.prefault import PREFAULT_AHEAD_BYTES, prefault_end
from tests.integration.server import Server, serving

MIB = 1 << 20
#: of the default model: 30 layers, 3 heads of 64, keys and values in bfloat16
BYTES_PER_TOKEN = 30 * 2 * 3 * 64 * 2
BLOCK_BYTES = 16 * BYTES_PER_TOKEN
NOISE = 6 * MIB  # by which processes of one kind differ
LIMIT_S = 60.0


def rss_from(core: psutil.Process, least: int) -> int:
    """Once it has been reached and has not changed for half a second."""
    end, never = time.monotonic() + LIMIT_S, threading.Event()
    rss, since = 0, time.monotonic()
    while rss < least or time.monotonic() - since < 0.5:
        assert time.monotonic() < end, f"{rss:,} bytes, {least:,} expected"
        never.wait(0.02)
        now = core.memory_info().rss
        if now != rss:
            rss, since = now, time.monotonic()
    return rss


def prefill(server: Server, word: str) -> int:
    """A prompt of one and the same length; returns the bytes of its blocks."""
    usage = server.complete(f"{word} " * 900, max_tokens=1)["usage"]
    return -(-usage["prompt_tokens"] // 16) * BLOCK_BYTES


def test_an_idle_server_is_ahead_by_the_bound_however_much_was_used(tmp_path: Path) -> None:
    num_blocks = 70
    with serving(tmp_path / "few", "--num-gpu-blocks-override", str(num_blocks)) as server:
        prefill(server, "zero")  # touches activations, too
        least = rss_from(server.core(), 0) - num_blocks * BLOCK_BYTES
    many = 700
    with serving(tmp_path / "many", "--num-gpu-blocks-override", str(many)) as server:
        used = 0
        for word in ("zero", "one", "two", "three", "four"):
            used += prefill(server, word)
            if word in ("zero", "four"):
                expected = least + prefault_end(used, many * BLOCK_BYTES)
                assert rss_from(server.core(), expected - NOISE) <= expected + NOISE
        assert used > PREFAULT_AHEAD_BYTES
