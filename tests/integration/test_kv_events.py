"""KV events of a real server, as a router would read them; and the subscriber of the manual."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from octavo.core.block_hash import PrefixScope, Sha256CborHasher
from tests.fakes.kv_subscriber import AllBlocksCleared, BlockStored, KVSubscriber
from tests.fakes.tiny_folder import write_tiny_folder
from tests.integration.server import ROOT, Server, serving

BLOCK_SIZE, NUM_BLOCKS = 16, 8
LIMIT_MS = 10_000
END_OF_REPLAY = bytes([255] * 8)
CONFIG = {
    "enable_kv_cache_events": True,
    "endpoint": "tcp://127.0.0.1:0",
    "replay_endpoint": "tcp://127.0.0.1:0",
    "topic": "kv@here@tiny",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("events")
    with serving(
        folder / "log",
        *("--num-gpu-blocks-override", str(NUM_BLOCKS + 1)),
        *("--prefix-caching-hash-algo", "sha256_cbor"),
        *("--kv-events-config", json.dumps(CONFIG)),
        model=write_tiny_folder(folder / "tiny"),
        env={"VLLM_SERVER_DEV_MODE": "1", "PYTHONHASHSEED": "7"},
    ) as running:
        yield running
        assert "Traceback" not in running.log


def source(server: Server) -> dict[str, Any]:
    """Where the server's one engine publishes."""
    found: dict[str, Any] = json.loads(server.request("GET", "/kv_event_sources")[2])["0"]
    return found


def everything(server: Server) -> KVSubscriber:
    """A subscriber that has been told all since the start."""
    subscriber = KVSubscriber()
    with zmq.Context() as context, context.socket(zmq.DEALER) as asking:
        asking.linger, asking.rcvtimeo = 0, LIMIT_MS
        asking.connect(source(server)["replay_endpoint"])
        asking.send_multipart([b"", bytes(8)])
        for number in range(1_000_000):
            empty, topic, sequence, payload = asking.recv_multipart()
            assert empty == b""
            if sequence == END_OF_REPLAY:
                break
            assert (topic, int.from_bytes(sequence, "big")) == (CONFIG["topic"].encode(), number)
            subscriber.apply(payload)
    return subscriber


def cached_names(token_ids: list[int], salt: str | None = None) -> list[int]:
    """The names of a prompt's full blocks, computed outside the server."""
    hashes = Sha256CborHasher("7").hash_blocks(PrefixScope(salt), None, token_ids, BLOCK_SIZE)
    return [int.from_bytes(block_hash[-8:], "big") for block_hash in hashes]


def ask(server: Server, prompt: list[int], **fields: Any) -> None:
    status, reply = server.post(
        "/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0, **fields}
    )
    assert status == 200, reply


def test_a_router_computes_the_names_it_is_told(server: Server) -> None:
    prompt = list(range(40))
    ask(server, prompt)
    ask(server, prompt, cache_salt="tenant")
    told = everything(server)
    expected = [*cached_names(prompt), *cached_names(prompt, "tenant")]
    assert {(0, name) for name in expected} <= told.names
    salted = next(
        event
        for event in told.events
        if isinstance(event, BlockStored) and event.extra_keys == [("tenant",), None]
    )
    assert salted.token_ids == prompt[:32]


def test_evictions_and_resets_are_told(server: Server) -> None:
    for first in range(100, 120):
        ask(server, [first, *range(50)])
    told = everything(server)
    assert len(told.names) <= NUM_BLOCKS
    assert {(0, name) for name in cached_names([119, *range(50)])} <= told.names
    assert server.post("/reset_prefix_cache", None) == (200, {"success": True})
    told = everything(server)
    assert isinstance(told.events[-1], AllBlocksCleared)
    assert told.names == set()


def test_where_events_are_published_is_said_with_real_ports(server: Server) -> None:
    found = source(server)
    assert found["publisher"] == "zmq"
    for key in ("endpoint", "replay_endpoint"):
        assert re.fullmatch(r"tcp://127\.0\.0\.1:[1-9]\d*", found[key])
    assert "whoever can connect there reads the token ids" in server.log


def test_the_subscriber_of_the_manual_hears_what_happens(server: Server, tmp_path: Path) -> None:
    manual = (ROOT / "docs/kv-events.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", manual, re.DOTALL)
    assert "tcp://127.0.0.1:5557" in program
    program = program.replace("tcp://127.0.0.1:5557", source(server)["endpoint"])
    errors = (tmp_path / "errors").open("w")
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=errors, text=True
    ) as subscriber:
        try:
            assert subscriber.stdout is not None
            # a subscriber hears nothing before it is connected, so it is told until it says so
            for number in range(1000):
                ask(server, [number // 250, number % 250, *range(30)])
                if _is_readable(subscriber.stdout):
                    break
            words = subscriber.stdout.readline().split()
            assert int(words[0]) > 0
            assert words[1] in ("BlockStored", "BlockRemoved")
        finally:
            subscriber.kill()
            errors.close()


def _is_readable(file: Any) -> bool:
    poller = zmq.Poller()
    poller.register(file.fileno(), zmq.POLLIN)
    return bool(poller.poll(50))


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ('{"enabled": true}', "--kv-events-config.enabled does not exist"),
        ('{"enable_kv_cache_events": true, "hwm": "x"}', "--kv-events-config.hwm must be an int"),
    ],
)
def test_a_wrong_configuration_ends_the_start(tmp_path: Path, config: str, sentence: str) -> None:
    server = Server(tmp_path / "log", "--kv-events-config", config)
    try:
        assert server.wait_exit() == 2
        assert sentence in server.log.splitlines()[-1]
    finally:
        server.stop()


def test_an_address_in_use_ends_the_start_with_its_name(server: Server, tmp_path: Path) -> None:
    taken = source(server)["endpoint"].replace("127.0.0.1", "*")
    second = Server(
        tmp_path / "log",
        *("--kv-events-config.enable_kv_cache_events", "true"),
        *("--kv-events-config.endpoint", taken),
        model=write_tiny_folder(tmp_path / "tiny"),
    )
    try:
        assert second.wait_exit() == 1
        assert f"the address {taken} cannot be used" in second.log.splitlines()[-1]
        assert not second.children()
    finally:
        second.stop()
