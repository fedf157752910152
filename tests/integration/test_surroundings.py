"""A server where little is allowed: keys, users without a name, few CPUs, no compiler."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from octavo.platforms.cpu import cpu_facts
from tests.integration.server import Server, serving

KEY = "sk-a-key-of-the-tests"
OPEN = {"/health", "/ready", "/live", "/ping", "/version", "/metrics"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("guarded") / "log"
    with serving(log, "--api-key", KEY, env={"OCTAVO_SERVER_DEV_MODE": "1"}) as server:
        yield server


def test_c118_every_route_but_the_probes_needs_the_key(guarded: Server) -> None:
    bearer = {"Authorization": f"Bearer {KEY}"}
    schema = json.loads(guarded.request("GET", "/openapi.json", headers=bearer)[2])
    routes = [
        (method.upper(), path.replace("{model}", "x").replace("{path}", "x"))
        for path, methods in schema["paths"].items()
        for method in methods
    ]
    # what is not there, or not yet, tells nothing either
    routes += [("POST", path) for path in ("/v1/messages", "/v1/responses")]
    closed = {"/tokenize", "/v1/chat/completions", "/invocations", "/server_info"}
    assert {path for _, path in routes} >= OPEN | closed
    for method, path in routes:
        body = {} if method == "POST" else None
        status, _, data = guarded.request(method, path, body)
        if path in OPEN:
            assert status == 200, path
            continue
        assert status == 401, path
        error = json.loads(data)["error"]
        assert error["code"] == "invalid_api_key"
        assert set(error) == {"message", "type", "param", "code"}
        for headers in (bearer, {"x-api-key": KEY}):
            assert guarded.request(method, path, body, headers=headers)[0] != 401, path


def test_c118_the_key_is_in_no_log_and_in_no_process_list(guarded: Server) -> None:
    for form in ("text", "json"):
        path = f"/server_info?config_format={form}"
        status, _, info = guarded.request("GET", path, headers={"x-api-key": KEY})
        assert status == 200
        assert KEY not in info.decode()
        assert b"(hidden)" in info
    assert KEY not in guarded.log
    for process in (psutil.Process(guarded.pid), guarded.core()):
        assert KEY not in " ".join(process.cmdline())


#: uid 12345 in a user namespace, where it has no name; everything read-only except /tmp and /dev.
#: It says who and where it is before it becomes the server.
STRANGER = """
mount --rbind /tmp /tmp && mount -o remount,bind,ro / && cd / || exit 125
exec unshare --user --map-user=12345 --map-group=12345 -- sh -c '
    echo "uid $(id -u), writes: $(touch x.tmp 2>&1 || true)"
    exec "$@"' sh "$@"
"""
IN_NAMESPACES = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", STRANGER, "sh")
#: the same without namespaces, which containers often forbid: the user's own id is then kept
IN_ROOT_FOLDER = ("sh", "-c", 'cd / && exec "$@"', "sh")


def can_run(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, timeout=30).returncode == 0


def test_c119_a_user_without_name_and_home_on_a_read_only_disk(tmp_path: Path) -> None:
    is_stranger = can_run(*IN_NAMESPACES, sys.executable, "-c", "")
    env = {"HOME": None, "USER": None, "LOGNAME": None, "XDG_RUNTIME_DIR": None, "TMPDIR": None}
    prefix = IN_NAMESPACES if is_stranger else IN_ROOT_FOLDER
    with serving(tmp_path / "log", env=env, prefix=prefix) as server:
        server.is_alive()
        assert os.readlink(f"/proc/{server.pid}/cwd") == "/"
    if is_stranger:
        assert re.search("^uid 12345, writes: .*Read-only file system", server.log, re.M)
    assert "Traceback" not in server.log


def thread_names(pid: int) -> list[str]:
    return [path.read_text().strip() for path in Path(f"/proc/{pid}/task").glob("*/comm")]


def test_c121_one_cpu_means_one_compute_thread(tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    pinned = (
        sys.executable,
        "-c",
        f"import os, sys; os.sched_setaffinity(0, {{{cpu}}}); os.execvp(sys.argv[1], sys.argv[1:])",
    )
    with serving(tmp_path / "log", prefix=pinned) as server:
        server.is_alive()
        assert re.search(r" 1 compute thread: .*\b1 CPUs allowed", server.log)
        assert "kernels on 1 thread" in server.log
        core = server.core()
        assert core.cpu_affinity() == [cpu]
        # one compute thread: the loop's own; no worker of the pool sleeps beside it
        assert [name for name in thread_names(core.pid) if "octavo-comp" in name] == []


def test_c125_without_a_compiler_the_best_kernels_run(tmp_path: Path) -> None:
    env: dict[str, str | None] = {"PATH": str(tmp_path), "CC": None, "CXX": None}
    with serving(tmp_path / "log", env=env) as server:
        server.is_alive()
        assert f"{cpu_facts().isa} kernels" in server.log
        mapped = Path(f"/proc/{server.core().pid}/maps").read_text()
        assert f"liboctavo_{cpu_facts().isa}.so" in mapped


def libraries_of(pid: int) -> set[str]:
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[-1] for line in lines if ".so" in line}


def test_c125_nothing_is_compiled_while_it_runs(live: Server) -> None:
    """Every library of the core was there before it was started."""
    live.is_alive()
    started_s = live.core().create_time()
    for path in libraries_of(live.core().pid):
        assert Path(path).stat().st_ctime < started_s, path
