"""The flag table is frozen: a changed name, default or class is a decision, not an accident.

After a deliberate change: `PYTHONPATH=. python tests/architecture/test_flags_golden.py >
tests/architecture/flags_golden.txt`, and a row of docs/differences-from-vllm.md if it departs from
vLLM.
"""

from __future__ import annotations

import json
from pathlib import Path

from octavo.config.flags.table import GROUPS

GOLDEN = Path(__file__).with_name("flags_golden.txt")


def render() -> str:
    """One line per flag: name, short forms and aliases, kind, default as JSON, class."""
    lines = []
    for group, flags in GROUPS.items():
        lines.append(f"[{group}]")
        for flag in flags:
            spellings = [f"-{short}" for short in flag.short]
            spellings += [f"--{alias}" for alias in flag.aliases]
            name = " ".join([flag.name, *spellings])
            lines.append(f"{name} | {flag.kind} | {json.dumps(flag.default)} | {flag.status}")
    return "\n".join(lines) + "\n"


def test_names_defaults_and_classes_are_the_frozen_ones() -> None:
    assert render().splitlines() == GOLDEN.read_text().splitlines()


if __name__ == "__main__":
    print(render(), end="")
