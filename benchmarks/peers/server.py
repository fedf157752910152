"""A server under test: started, awaited until it answers, measured, stopped with its children."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

STOP_LIMIT_S = 20.0
POLL_S = 0.01


class ServerFailed(Exception):
    """It did not start, or not in time."""


class Server:
    """One server process in a session of its own.

    Args:
        name: of the log file.
        command: how it is started; `{port}` is replaced.
        log: where its output goes.
        limit_s: until it must answer.
        model: name put in each request.
        environment: more variables.

    Attributes:
        port: it listens on.
        ready_s: from its start to its first generated token, as a user would see it.
    """

    def __init__(
        self,
        name: str,
        command: str,
        log: Path,
        *,
        limit_s: float = 300.0,
        model: str = "m",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.model = name, model
        self.port = free_port()
        words = shlex.split(command.replace("{port}", str(self.port)))
        start = time.perf_counter()
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                words,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        try:
            self._await_answer(start + limit_s, log)
        except BaseException:
            self.stop()
            raise
        self.ready_s = time.perf_counter() - start

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def pss_bytes(self) -> int:
        """Memory of all processes of the session; a page that several share counts once."""
        total = 0
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                if os.getsid(int(folder.name)) != self._process.pid:
                    continue
                rollup = (folder / "smaps_rollup").read_text()
            except OSError:  # it has ended meanwhile
                continue
            total += sum(
                int(line.split()[1]) * 1024
                for line in rollup.splitlines()
                if line.startswith("Pss:")
            )
        return total

    def stop(self) -> None:
        """Ends it, politely first."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(STOP_LIMIT_S)
            except ProcessLookupError:
                self._process.wait(STOP_LIMIT_S)
                return
            except subprocess.TimeoutExpired:
                continue
            if not _session_lives(self._process.pid):
                return

    def _await_answer(self, until_s: float, log: Path) -> None:
        while not self._answers():
            if self._process.poll() is not None:
                raise ServerFailed(
                    f"{self.name} ended with code {self._process.returncode} before it was ready; "
                    f"its log: {log}"
                )
            if time.perf_counter() > until_s:
                raise ServerFailed(f"{self.name} was not ready in time; its log: {log}")
            time.sleep(POLL_S)

    def _answers(self) -> bool:
        body = {"model": self.model, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "Authorization": "Bearer x"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return bool(json.load(reply)["usage"]["completion_tokens"] == 1)
        except (OSError, KeyError, ValueError):
            return False


def _session_lives(session: int) -> bool:
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and os.getsid(int(folder.name)) == session:
                return True
        except OSError:
            continue
    return False


def free_port() -> int:
    """A TCP port of the loopback that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
