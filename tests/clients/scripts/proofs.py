"""What every client script shares: the target it is given, and its list of checks.

A check is a function under a sentence that says what it proves. `main` runs those meant for the
server it is given and prints one line of JSON each, so that one run shows all that fails.

Runs in: the environment of the client, which has nothing of Octavo and no test package.
Owns: the lines that `tests/clients/running.py` reads. Knows nothing of: any client.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Target:
    """Where and how to ask: the one argument of a script, as JSON.

    Attributes:
        origin: `http://127.0.0.1:PORT`; `url` adds `/v1`.
        key: what the server asks of a client.
        server: name of the set of flags it was started with (`tests/clients/catalogue.py`).
        work: an empty folder of this run.
        python: interpreter of the client's environment.
        model_path: the file served.
    """

    origin: str
    model: str
    key: str
    server: str
    work: str
    python: str
    model_path: str

    @property
    def url(self) -> str:
        """The base URL that OpenAI clients are given."""
        return f"{self.origin}/v1"

    def metric(self, name: str) -> float:
        """Sum of a metric's samples at this moment."""
        with urllib.request.urlopen(f"{self.origin}/metrics", timeout=10) as reply:
            lines = reply.read().decode().splitlines()
        values = [float(line.split()[-1]) for line in lines if line.split("{")[0] == name]
        if not values:
            raise AssertionError(f"/metrics has no {name}")
        return sum(values)

    def wait_idle(self, limit_s: float = 10.0) -> None:
        """Waits until no request runs, as it must soon after a client has left."""
        deadline = time.monotonic() + limit_s
        while self.metric("vllm:num_requests_running"):
            if time.monotonic() > deadline:
                raise AssertionError(f"a request still runs {limit_s} s after its client left")


@dataclass
class Checks:
    """The checks of one script, in the order of their definition."""

    found: list[tuple[str, tuple[str, ...], Callable[[], Any]]] = field(default_factory=list)

    def __call__(
        self, sentence: str, *servers: str
    ) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
        """Adds a function, plain or async, meant for `servers`, or `small` when none is named."""

        def add(function: Callable[[], Any]) -> Callable[[], Any]:
            self.found.append((sentence, servers or ("small",), function))
            return function

        return add

    def main(self) -> None:
        """Runs what is meant for the target's server; ends the process with 1 if one fails."""
        num_failed = 0
        for sentence, servers, function in self.found:
            if target.server not in servers:
                continue
            started_s = time.monotonic()
            line: dict[str, Any] = {"check": sentence}
            try:
                result = function()
                if inspect.iscoroutine(result):
                    asyncio.run(result)
            except Exception as error:  # whatever a client or an assertion raises
                num_failed += 1
                traceback.print_exc()
                line["error"] = f"{type(error).__name__}: {error}"
            line["seconds"] = round(time.monotonic() - started_s, 2)
            print(json.dumps(line), flush=True)
        sys.exit(1 if num_failed else 0)


target = Target(**json.loads(sys.argv[1]))
check = Checks()
