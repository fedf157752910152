"""A server under many clients that come and go (the long form is `soak.py`)."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.server import Server, Stream, serving
from tests.integration.soak import (
    MAX_GROWTH_BYTES,
    SERVER_ARGS,
    Footprint,
    idle_cpu_share,
    round_of,
    storm,
    wait_files,
    wait_idle,
)

GREEDY = {"prompt": "Once upon a time", "max_tokens": 120, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("soak") / "log", *SERVER_ARGS) as running:
        yield running
        assert "Traceback" not in running.log


def text_of(events: list[str]) -> str:
    assert events[-1] == "[DONE]"
    return "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1])


def test_200_streams_with_random_disconnects_leave_nothing_behind(server: Server) -> None:
    rng = random.Random(0)
    num_files = Footprint.of(server).num_files
    sizes = []
    for num_streams in (200, 50, 50, 50):
        ends = asyncio.run(round_of(server.port, rng, streams=num_streams, max_tokens=12))
        assert ends["stays"] > num_streams / 4
        assert len(ends) == 5
        wait_idle(server)
        wait_files(server, num_files)
        sizes.append(Footprint.of(server).anonymous_bytes)
    assert sizes[-1] - sizes[1] < MAX_GROWTH_BYTES, sizes  # the first two warm up
    server.is_alive()


def test_1000_clients_that_leave_at_once_do_not_disturb_a_running_stream(server: Server) -> None:
    alone = server.complete(**GREEDY)["choices"][0]["text"]
    num_files = Footprint.of(server).num_files
    stream = Stream(server, "/v1/completions", GREEDY)
    events = stream.events()
    first = next(events)
    asyncio.run(storm(server.port, 1000))
    assert text_of([first, *events]) == alone
    stream.close()
    wait_idle(server)
    wait_files(server, num_files)
    server.is_alive()


def test_a_client_that_does_not_read_holds_up_nobody(server: Server) -> None:
    alone = server.complete(**GREEDY)["choices"][0]["text"]
    num_files = Footprint.of(server).num_files
    asked = {"prompt": "x", "max_tokens": 200, "ignore_eos": True, "logprobs": 20}
    lazy = [Stream(server, "/v1/completions", asked) for _ in range(2)]
    assert server.complete(**GREEDY)["choices"][0]["text"] == alone
    wait_idle(server, limit_s=30)  # the engine is done with them, whoever reads
    for stream in lazy:
        stream.close()
    wait_files(server, num_files)


def test_an_idle_server_uses_no_processor(server: Server) -> None:
    wait_idle(server)
    assert idle_cpu_share(server, 2.0) < 0.01


def test_a_client_that_does_not_read_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with serving(tmp_path / "log", *SERVER_ARGS, "--shutdown-timeout", "1") as server:
        asked = {"prompt": "x", "max_tokens": 500, "ignore_eos": True, "logprobs": 20}
        lazy = Stream(server, "/v1/completions", asked)
        family = [psutil.Process(server.pid), *server.children()]
        server.process.terminate()
        assert server.wait_exit(8) == 0
        assert not psutil.wait_procs(family, timeout=2)[1]
        lazy.close()
