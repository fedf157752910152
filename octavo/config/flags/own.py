"""Flags that only Octavo has; each is a row of docs/differences-from-vllm.md."""

from __future__ import annotations

from octavo.config.flags.flag import BOOL, INT, STR, Flag

GROUP = "Octavo"

FLAGS = (
    Flag("api-key-guards-metrics", BOOL, False, "with --api-key, /metrics needs the key as well"),
    Flag("startup-trace", STR, None, "file for the phases of start-up, in Chrome trace format"),
    Flag(
        "cpu-threads",
        INT,
        None,
        "compute threads",
        low=1,
        high=1024,
        auto="one per physical core, within affinity and cgroup quota",
    ),
    Flag(
        "prompt-dtype",
        STR,
        "auto",
        "what quantised weights read tokens of prompts in: auto is bfloat16 where the CPU has tile "
        "registers for it (level amx), int8 of rotated values on other levels with AVX-512, and as "
        "generated tokens elsewhere; int8 is as generated tokens on every level, whose cached "
        "blocks a prompt can then use; bfloat16 insists on it and is refused where there are no "
        "tile registers",
        choices=("auto", "int8", "bfloat16"),
    ),
    Flag(
        "isa",
        STR,
        None,
        "level of the native library, for tests",
        choices=(
            "scalar",
            "avx2",
            "avx512_vnni",
            "avx512_bf16",
            "amx",
            "neon_dotprod",
            "neon_i8mm",
        ),
        auto="the best that runs here",
    ),
)
