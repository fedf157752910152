"""Rows of the mission: which threads and processes there are, and how they talk."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil

from octavo.weights.hub import HubSettings, locate
from tests.fakes.fake_async_llm import PlayedCore, make_llm
from tests.integration.server import Server
from tests.mission.proc import mapped_files, sockets_of, thread_names, unix_socket_paths

ROOT = Path(__file__).resolve().parents[2]


def num_compute_threads(server: Server) -> int:
    """As the log says it."""
    words = server.log.partition(" compute thread")[0].split()
    return int(words[-1])


def test_two_processes_the_api_server_and_the_engine_core(live: Server) -> None:
    (core,) = live.children()
    assert core.cmdline()[0] == "Octavo::EngineCore"
    assert core.ppid() == live.pid
    assert core.children() == []


def test_the_main_thread_is_uvicorns_and_the_stats_logger_has_its_own(live: Server) -> None:
    names = thread_names(live.pid)
    assert Path(f"/proc/{live.pid}/comm").read_text().strip() == "Octavo::APIServ"  # 15 bytes
    assert names.count("octavo-stats") == 1


def test_threads_of_the_start_are_gone(live: Server) -> None:
    assert not {"octavo-signals", "octavo-starting", "octavo-handshake"} & set(
        thread_names(live.pid)
    )


def test_the_engine_core_is_one_loop_its_compute_threads_and_two_that_wait(live: Server) -> None:
    # other tests of this server may have asked for grammars, whose threads stay
    of_grammars = {"octavo-grammars", "octavo-masks"}
    names = [name for name in thread_names(live.core().pid) if name not in of_grammars]
    assert names.count("Octavo::EngineC") == 1
    assert names.count("octavo-life") == 1
    # the loop's thread computes too, so there is one less
    workers = [name for name in names if name.startswith("octavo-comp-")]
    assert len(workers) == num_compute_threads(live) - 1
    assert {name for name in names if name.startswith("ZMQ")} == {"ZMQbg/IO/0", "ZMQbg/Reaper"}
    assert names.count("octavo-prefault") == 1  # begun when the core first had nothing to do
    assert len(names) == 5 + len(workers)


def test_one_task_reads_the_engines_outputs_and_processes_them() -> None:
    """vLLM's input handler and output handler: one asyncio task of the main thread."""

    async def run() -> list[str]:
        llm = make_llm(PlayedCore())
        names = [task.get_name() for task in asyncio.all_tasks()]
        await llm.shutdown()
        return names

    assert asyncio.run(run()).count("octavo-outputs") == 1


def test_the_processes_talk_over_unix_sockets_and_only_http_is_on_tcp(live: Server) -> None:
    paths = unix_socket_paths(live.pid)
    assert [Path(path).name for path in paths] == ["core0"]
    assert os.stat(Path(*paths).parent).st_mode & 0o077 == 0  # for this user only
    for pid, num_listening in ((live.pid, 1), (live.core().pid, 0)):
        found = psutil.Process(pid).net_connections("tcp")
        assert len([c for c in found if c.status == psutil.CONN_LISTEN]) == num_listening
    assert sockets_of(live.core().pid)


def test_the_api_process_and_the_core_import_no_torch(live: Server) -> None:
    for pid in (live.pid, live.core().pid):
        assert not [path for path in mapped_files(pid) if "torch" in path]


def test_the_tokenizer_is_in_the_api_process_and_the_kernels_in_the_core(live: Server) -> None:
    def has(pid: int, word: str) -> bool:
        return any(word in path for path in mapped_files(pid))

    assert has(live.pid, "tokenizers")
    assert not has(live.core().pid, "tokenizers")
    assert has(live.core().pid, "liboctavo_")
    assert not has(live.pid, "liboctavo_")


def test_uniproc_everything_is_in_one_process_without_sockets() -> None:
    code = """
import json, os, sys
from octavo import LLM, SamplingParams
with LLM() as llm:
    llm.generate(["a"], SamplingParams(max_tokens=2), use_tqdm=False)
    import psutil
    me = psutil.Process()
    fds = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
           if os.path.exists(f"/proc/self/fd/{fd}")]
    print(json.dumps({
        "children": len(me.children()),
        "zmq": "zmq" in sys.modules,
        "sockets": [fd for fd in fds if fd.startswith("socket")],
    }))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said = json.loads(done.stdout.splitlines()[-1])
    assert said == {"children": 0, "zmq": False, "sockets": []}


def test_the_model_file_is_closed_once_the_core_has_packed_it(live: Server) -> None:
    model = os.path.realpath(locate(None, HubSettings(cache_dir="")))
    for pid in (live.pid, live.core().pid):
        assert model not in mapped_files(pid)
        opened = {os.path.realpath(file.path) for file in psutil.Process(pid).open_files()}
        assert model not in opened
