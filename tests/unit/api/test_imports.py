"""What the API may load before the first answer: import time is start-up time."""

from __future__ import annotations

import subprocess
import sys


def loaded_by(module: str, *names: str) -> set[str]:
    """Which of `names` a fresh interpreter has loaded after importing `module`."""
    program = f"import sys, {module}; print(*[n for n in {names!r} if n in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return set(result.stdout.split())


def test_the_application_loads_no_framework() -> None:
    names = ("fastapi", "pydantic", "starlette", "anyio", "numpy", "jinja2", "torch")
    assert loaded_by("octavo.api.app", *names) == set()
    assert loaded_by("octavo.api.server", *names) == set()


def test_what_runs_before_the_core_is_started_loads_no_event_loop() -> None:
    names = ("asyncio", "ssl", "uvicorn", "http.client", "json")
    assert loaded_by("octavo.api.listener", *names) == set()
    assert loaded_by("octavo.api.starting", *names) == set()
