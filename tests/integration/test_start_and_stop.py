"""Start, stop and death of real server processes (cases C104 C106 C107 C109 C113)."""

from __future__ import annotations

import json
import random
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.server import Server, Stream, serving

GONE_LIMIT_S = 2.0


def wait_gone(processes: list[psutil.Process], limit_s: float = GONE_LIMIT_S) -> list[str]:
    """What is still alive after `limit_s` (zombies count as gone)."""
    _, alive = psutil.wait_procs(processes, timeout=limit_s)
    return [str(p) for p in alive if p.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "log") as running:
        yield running


def start(tmp_path: Path, *args: str, **options: object) -> Server:
    return Server(tmp_path / "log", *args, **options)  # type: ignore[arg-type]


# ---- refused starts ---------------------------------------------------------------------------


def test_c107_port_in_use_is_one_sentence_before_any_loading(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = start(tmp_path, port=taken.getsockname()[1])
        try:
            assert server.wait_exit() != 0
        finally:
            server.stop()
    assert time.monotonic() - server.started_s < 3
    last = server.log.strip().splitlines()[-1]
    assert str(server.port) in last
    assert "in use" in last
    assert "Traceback" not in server.log
    assert "weights" not in server.log.lower()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("/does/not/exist.gguf", ["/does/not/exist.gguf"]),
        ("empty-folder", ["empty-folder"]),
        ("truncated.gguf", ["truncated.gguf"]),
        ("unknown-architecture", ["MysteryForCausalLM"]),
    ],
)
def test_c109_unusable_model_is_named_in_the_last_line(
    tmp_path: Path, model: str, words: list[str]
) -> None:
    (tmp_path / "empty-folder").mkdir()
    (tmp_path / "truncated.gguf").write_bytes(b"GGUF\x03\x00\x00\x00" + b"\x01" * 20)
    unknown = tmp_path / "unknown-architecture"
    unknown.mkdir()
    (unknown / "config.json").write_text(json.dumps({"architectures": ["MysteryForCausalLM"]}))
    (unknown / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    server = start(tmp_path, model=model if model.startswith("/") else str(tmp_path / model))
    try:
        assert server.wait_exit(10) not in {0, None}
    finally:
        server.stop()
    last = server.log.strip().splitlines()[-1]
    assert all(word in last for word in words), server.log
    assert "Traceback" not in server.log


# ---- signals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_during_start_ends_everything(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    rng = random.Random(number)
    for _ in range(4):
        server = start(tmp_path)
        try:
            server.pause(rng.uniform(0.15, 0.6))
            family = server.children()
            early = b"Application startup complete." not in server.log_path.read_bytes()
            server.signal(number)
            exit_code = server.wait_exit(5)
            assert wait_gone(family) == []
            late = "Application startup complete." in server.log
            if "Octavo version" not in server.log:  # Python itself was still starting
                assert exit_code in (code, -number), server.log
                continue
            assert "Traceback" not in server.log
            if early and not late:
                assert exit_code == code, server.log
        finally:
            server.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_when_idle_ends_with_zero(server: Server, number: signal.Signals) -> None:
    family = server.children()
    assert family
    server.signal(number)
    assert server.wait_exit(5) == 0, server.log
    assert wait_gone(family) == []
    assert "Traceback" not in server.log


def test_c106_sigterm_lets_a_running_stream_finish(server: Server) -> None:
    with Stream(
        server, "/v1/completions", {"prompt": "One, two,", "max_tokens": 150, "ignore_eos": True}
    ) as stream:
        events = stream.events()
        next(events)
        server.signal(signal.SIGTERM)
        server.wait_status("/ready", 503, 2)
        status, headers, body = server.request("POST", "/v1/completions", {"prompt": "x"})
        assert status == 503
        assert int(headers["retry-after"]) >= 1
        assert json.loads(body)["error"]["message"]
        rest = list(events)
        assert rest[-1] == "[DONE]"
        reasons = [c["finish_reason"] for e in rest[:-1] for c in json.loads(e).get("choices", [])]
        assert [r for r in reasons if r] == ["length"]
        assert server.wait_exit(10) == 0


def test_c106_running_stream_gets_an_error_event_at_the_limit(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "log", "--shutdown-timeout", "1") as server,
        Stream(
            server, "/v1/completions", {"prompt": "a", "max_tokens": 8000, "ignore_eos": True}
        ) as stream,
    ):
        events = stream.events()
        next(events)
        server.signal(signal.SIGTERM)
        rest = list(events)
        assert rest[-1] == "[DONE]"
        assert "error" in json.loads(rest[-2])
        assert server.wait_exit(10) == 0


def test_c106_second_signal_ends_at_once(server: Server) -> None:
    with Stream(
        server, "/v1/completions", {"prompt": "a", "max_tokens": 8000, "ignore_eos": True}
    ) as stream:
        next(stream.events())
        family = server.children()
        server.signal(signal.SIGTERM)
        server.wait_status("/ready", 503, 2)
        server.signal(signal.SIGTERM)
        began = time.monotonic()
        server.wait_exit(5)
        assert time.monotonic() - began < 1.5
        assert wait_gone(family) == []


# ---- sudden death -----------------------------------------------------------------------------


@pytest.mark.parametrize("moment", range(20))
@pytest.mark.parametrize("victim", ["front end", "core"])
def test_c104_kill_9_at_a_random_moment_leaves_nothing(
    tmp_path: Path, victim: str, moment: int
) -> None:
    rng = random.Random(f"{victim} {moment}")
    server = start(tmp_path)
    try:
        server.pause(rng.uniform(0.05, 1.5))
        children = server.children()
        front = psutil.Process(server.pid)
        if victim == "front end":
            front.kill()
        elif children:
            children[0].kill()
            began = time.monotonic()
            assert server.wait_exit(5) != 0
            assert time.monotonic() - began < GONE_LIMIT_S
        else:
            front.kill()  # the core is not born yet
        assert wait_gone([front, *children]) == []
    finally:
        server.stop()


def test_dead_core_ends_running_requests_and_the_server(server: Server) -> None:
    with Stream(
        server, "/v1/completions", {"prompt": "a", "max_tokens": 8000, "ignore_eos": True}
    ) as stream:
        events = stream.events()
        next(events)
        server.core().kill()
        rest = list(events)
        assert rest[-1] == "[DONE]"
        assert json.loads(rest[-2])["error"]["message"]
        assert server.wait_exit(5) == 1
        assert "core" in server.log.strip().splitlines()[-1].lower()


# ---- health -----------------------------------------------------------------------------------


def test_c113_health_tells_starting_from_ready(tmp_path: Path) -> None:
    server = start(tmp_path)
    try:
        seen: list[int] = []
        while not seen or seen[-1] != 200:
            try:
                status, headers, body = server.request("GET", "/health", timeout_s=5)
            except OSError:
                assert server.process.poll() is None, server.log
                continue
            if status == 503:
                assert int(headers["retry-after"]) >= 1
                assert json.loads(body)
            seen.append(status)
        assert set(seen) <= {503, 200}
        assert 503 in seen
        assert server.request("GET", "/live")[0] == 200
        assert server.request("GET", "/ready")[0] == 200
        assert server.complete("Hello", max_tokens=1)["usage"]["completion_tokens"] == 1
    finally:
        server.stop()
