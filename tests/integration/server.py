"""A real `octavo serve` process for tests: started on a free loopback port, always stopped."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
READY_LIMIT_S = 60.0


def free_port() -> int:
    """A loopback port nobody listens on at this moment."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


class Server:
    """One server process and what a test wants to ask it.

    `args` are appended to `octavo serve --host 127.0.0.1 --port P`; `env` is laid over the
    environment (None removes a name). stdout and stderr go to `log_path`. `module` is run instead
    of `octavo`.
    """

    def __init__(
        self,
        log_path: Path,
        *args: str,
        env: dict[str, str | None] | None = None,
        prefix: tuple[str, ...] = (),
        port: int | None = None,
        model: str | None = None,
        module: str = "octavo",
    ) -> None:
        self.port = free_port() if port is None else port
        self.log_path = log_path
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        for name, value in (env or {}).items():
            environment.pop(name, None)
            if value is not None:
                environment[name] = value
        command = [*prefix, sys.executable, "-m", module, "serve", *([model] if model else [])]
        command += ["--host", "127.0.0.1", "--port", str(self.port), *args]
        self.started_s = time.monotonic()
        with log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        """Everything printed so far."""
        return self.log_path.read_text(errors="replace")

    def children(self) -> list[psutil.Process]:
        """The server's child processes, at any depth."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).children(recursive=True)
        return []

    def core(self) -> psutil.Process:
        """The EngineCore process."""
        (child,) = self.children()
        return child

    def wait_ready(self, path: str = "/health") -> Server:
        """Blocks until the server answers 200 on `path`; fails with its log if it ends before."""
        self.wait_status(path, 200)
        return self

    def wait_status(self, path: str, status: int, limit_s: float = READY_LIMIT_S) -> None:
        """Polls `path` until it answers with `status`."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"exited with {self.process.returncode}\n{self.log}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.request("GET", path, timeout_s=5)[0] == status:
                    return
            self.pause(0.02)
        raise AssertionError(f"{path} did not answer {status} in {limit_s} s\n{self.log}")

    def pause(self, seconds: float) -> None:
        """Waits at most `seconds`, less if the process ends."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        timeout_s: float = 60,
    ) -> tuple[int, dict[str, str], bytes]:
        """One HTTP exchange: (status, headers in lower case, body)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            sent = {"Content-Type": "application/json"} if data is not None else {}
            connection.request(method, path, data, {**sent, **(headers or {})})
            response = connection.getresponse()
            names = {k.lower(): v for k, v in response.getheaders()}
            return response.status, names, response.read()
        finally:
            connection.close()

    def post(self, path: str, body: Any, **options: Any) -> tuple[int, Any]:
        """POST JSON, answer decoded: (status, object)."""
        status, _, data = self.request("POST", path, body, **options)
        return status, json.loads(data)

    def complete(self, prompt: str, **fields: Any) -> dict[str, Any]:
        """A whole completion; fails unless the answer is 200."""
        status, answer = self.post(
            "/v1/completions", {"prompt": prompt, "temperature": 0, **fields}
        )
        assert status == 200, answer
        found: dict[str, Any] = answer
        return found

    def chat(self, text: str, **fields: Any) -> dict[str, Any]:
        """A whole chat answer to one user message; fails unless the answer is 200."""
        messages = [{"role": "user", "content": text}]
        status, answer = self.post(
            "/v1/chat/completions", {"messages": messages, "temperature": 0, **fields}
        )
        assert status == 200, answer
        found: dict[str, Any] = answer
        return found

    def is_alive(self) -> None:
        """The alive check of the user cases: a plain chat request is answered."""
        answer = self.chat("Say hi.", max_tokens=3)
        assert answer["choices"][0]["finish_reason"] in {"stop", "length"}

    def metric(self, name: str, **labels: str) -> float:
        """Value of one sample of /metrics; labels given must match."""
        text = self.request("GET", "/metrics")[2].decode()
        for line in text.splitlines():
            sample, _, value = line.rpartition(" ")
            if sample.split("{")[0] == name and all(
                f'{k}="{v}"' in sample for k, v in labels.items()
            ):
                return float(value)
        raise AssertionError(f"no sample {name} {labels}")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait_exit(self, limit_s: float = 20) -> int:
        """Exit code, waiting at most `limit_s`."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {limit_s} s\n{self.log}") from None

    def stop(self) -> None:
        """Ends everything this server started, whatever state it is in."""
        family = [*self.children()]
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
        for child in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


@contextlib.contextmanager
def serving(log_path: Path, *args: str, **options: Any) -> Iterator[Server]:
    """A server that is ready inside the block and gone after it."""
    server = Server(log_path, *args, **options)
    try:
        yield server.wait_ready()
    finally:
        server.stop()


class Stream:
    """A streaming POST read event by event over a raw socket, so that a test can leave half-way."""

    def __init__(
        self,
        server: Server,
        path: str,
        body: dict[str, Any],
        timeout_s: float = 60,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=timeout_s)
        data = json.dumps({"stream": True, **body}).encode()
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self.socket.sendall(
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{more}"
            f"Connection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode()
            + data
        )
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.headers: dict[str, str] = {}
        for line in iter(self.file.readline, b"\r\n"):
            if not line:
                break
            name, _, value = line.decode().partition(":")
            self.headers[name.lower()] = value.strip()

    def events(self) -> Iterator[str]:
        """The payload of each `data:` line, `[DONE]` included, until the connection ends."""
        for line in self.file:
            if line.startswith(b"data: "):
                yield line[6:].decode().strip()

    def is_readable(self, within_s: float) -> bool:
        return bool(select.select([self.socket], [], [], within_s)[0])

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves at once, as a client that is killed does."""
        self.file.close()
        self.socket.close()
