"""Rows of the mission: the server's start, step by step, seen from outside."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from octavo.config.engine import EngineConfig
from octavo.config.rules.executor import choose_executor
from octavo.executor.uniproc import UniprocExecutor
from octavo.launch.executors import make_executor
from tests.fakes.engine_config import engine_config
from tests.integration.server import Server, serving
from tests.mission.proc import sockets_of, thread_names

ORIGIN = "https://app.example"


def held_start(log_path: Path, **env: str | None) -> tuple[Server, psutil.Process]:
    """A server whose core was stopped while it was young: its start cannot get any further."""
    server = Server(log_path, env=env)
    while "compute thread" not in server.log:  # the last thing before the web stack is imported
        assert server.process.poll() is None, server.log
    core = server.core()
    core.suspend()
    return server, core


def listening_inode(server: Server) -> int | None:
    """The socket that listens on the server's port, if it is the server's own."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        port, state, inode = int(fields[1].partition(":")[2], 16), fields[3], int(fields[9])
        if port == server.port and state == "0A":
            return inode if inode in sockets_of(server.pid) else None
    return None


def phases(server: Server, process: str) -> list[str]:
    """Names of the phases in the log's table, in order."""
    return re.findall(rf"\]   {process} +(\S.*?)  +\d+\.\d+ - ", server.log)


def test_step_1_flags_are_parsed_before_anything_is_bound(tmp_path: Path) -> None:
    server = Server(tmp_path / "log", "--max-num-seqs", "many")
    try:
        assert server.wait_exit(5) == 2
    finally:
        server.stop()
    assert "Starting Octavo server" not in server.log
    assert "--max-num-seqs must be an integer" in server.log


def test_step_2_and_7_the_port_is_bound_before_the_engine_and_uvicorn_serves_on_that_socket(
    tmp_path: Path,
) -> None:
    server, core = held_start(tmp_path / "log")
    try:
        inode = listening_inode(server)
        assert inode is not None
        status, _, data = server.request("GET", "/health")
        assert (status, json.loads(data)["error"]["code"]) == (503, 503)
        assert server.request("GET", "/live")[0] == 200
        assert "Started server process" not in server.log  # uvicorn's
        core.resume()
        server.wait_ready()
        assert "Started server process" in server.log
        assert listening_inode(server) == inode
        assert phases(server, "APIServer").index("bind and listen") < phases(
            server, "APIServer"
        ).index("start EngineCore")
    finally:
        server.stop()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_step_3_a_signal_while_starting_ends_everything_from_a_thread_of_its_own(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    server, core = held_start(tmp_path / "log")
    try:
        assert "octavo-signals" in thread_names(server.pid)
        server.signal(number)
        assert server.wait_exit(5) == code
        assert psutil.wait_procs([core], timeout=2)[1] == []
    finally:
        server.stop()
    assert f"Received {number.name} while starting" in server.log
    assert "Traceback" not in server.log
    assert "KeyboardInterrupt" not in server.log


def test_step_4_the_engine_is_put_together_in_order(live: Server) -> None:
    """The core's process is started first, since it needs time to import; then (a) configuration,
    (c) processors and tokenizer; the core, which has got the configuration, loads meanwhile."""
    order = phases(live, "APIServer")
    steps = ["start EngineCore", "model facts, configuration", "tokenizer", "wait for EngineCore"]
    assert [name for name in order if name in steps] == steps
    assert phases(live, "EngineCore")[:3] == [
        "interpreter and imports",
        "wait for configuration",
        "load weights",
    ]


def test_step_4b_the_executor_is_chosen_by_the_name_of_its_backend(tmp_path: Path) -> None:
    config: EngineConfig = engine_config()
    assert config.parallel.distributed_executor_backend == "uni"
    assert isinstance(make_executor(config), UniprocExecutor)
    choice = choose_executor("mp")  # one worker: no process of its own, with a note
    assert choice.value == "uni"
    assert choice.reason.startswith("executor uni instead of mp: ")
    server = Server(tmp_path / "log", "--distributed-executor-backend", "ray")
    try:
        assert server.wait_exit(5) == 2
    finally:
        server.stop()
    assert "--distributed-executor-backend ray is not supported" in server.log


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a key from the environment, an allowed origin, and a talkative log."""
    env: dict[str, str | None] = {
        "VLLM_API_KEY": "sk-of-the-environment",
        "VLLM_LOGGING_LEVEL": "DEBUG",
        "VLLM_LOG_STATS_INTERVAL": "0.2",
    }
    log = tmp_path_factory.mktemp("guarded") / "log"
    with serving(log, "--allowed-origins", json.dumps([ORIGIN]), env=env) as server:
        yield server


def test_step_6a_the_routes_are_there(live: Server) -> None:
    paths = set(json.loads(live.request("GET", "/openapi.json")[2])["paths"])
    assert paths >= {
        "/health",
        "/metrics",
        "/v1/models",
        "/v1/completions",
        "/v1/chat/completions",
        "/tokenize",
    }


def test_step_6b_authentication_if_there_is_a_key(live: Server, guarded: Server) -> None:
    assert live.request("GET", "/v1/models")[0] == 200
    assert guarded.request("GET", "/v1/models")[0] == 401
    bearer = {"Authorization": "Bearer sk-of-the-environment"}
    assert guarded.request("GET", "/v1/models", headers=bearer)[0] == 200


def test_step_6c_cors(live: Server, guarded: Server) -> None:
    origin = {"Origin": ORIGIN}
    allowed = guarded.request("GET", "/health", headers=origin)[1]
    assert allowed["access-control-allow-origin"] == ORIGIN
    assert "access-control-allow-origin" not in live.request("GET", "/health", headers=origin)[1]


def test_step_6d_chat_and_completions_are_served_on_one_engine(live: Server) -> None:
    before = live.metric("vllm:request_success_total", finished_reason="length")
    live.chat("hi", max_tokens=1, ignore_eos=True)
    live.complete("hi", max_tokens=1, ignore_eos=True)
    assert live.metric("vllm:request_success_total", finished_reason="length") == before + 2


def test_step_8_the_heap_of_the_start_is_frozen_in_both_processes(guarded: Server) -> None:
    lines = re.findall(r"\((\w+) pid=\d+\) DEBUG .* (\d+) objects of the start are", guarded.log)
    counts = {process: int(count) for process, count in lines}
    assert set(counts) == {"APIServer", "EngineCore"}
    assert min(counts.values()) > 10_000


def test_the_stats_logger_has_a_thread_and_an_interval(guarded: Server, tmp_path: Path) -> None:
    assert "octavo-stats" in thread_names(guarded.pid)
    deadline = time.monotonic() + 5
    while guarded.log.count("Avg generation throughput") < 3:  # idle lines are DEBUG
        assert time.monotonic() < deadline
    with serving(tmp_path / "log", "--disable-log-stats") as silent:
        assert "octavo-stats" not in thread_names(silent.pid)
