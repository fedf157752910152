"""Texts for real models."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LICENSE = (ROOT / "LICENSE").read_text()
#: this project's own code, documents and C++
SOURCES = [
    *sorted((ROOT / "octavo/weights").glob("*.py")),
    ROOT / "csrc/src/attention.cpp",
    ROOT / "ARCHITECTURE.md",
]
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    (
        "Der Fluss flie\u00dft durch das Tal, und die Br\u00fccke ist alt. "
        "\u6771\u4eac\u306f\u65e5\u672c\u306e\u9996\u90fd\u3067\u3059\u3002"
    ),
    "1, 1, 2, 3, 5, 8, 13,",
]
