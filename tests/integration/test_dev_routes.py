"""The development switch on a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.integration.server import Server, serving


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("dev") / "log"
    with serving(log, env={"OCTAVO_SERVER_DEV_MODE": "1"}) as server:
        yield server


def test_a_profile_says_where_the_time_of_steps_went(live: Server) -> None:
    assert live.request("POST", "/start_profile")[0] == 200
    live.complete("one two three", max_tokens=4)
    status, profile = live.post("/stop_profile", None)
    assert status == 200
    assert profile["num_steps"] == 4
    ops = {op["op"]: op for op in profile["ops"]}
    assert ops["LINEAR"]["seconds"] > 0
    assert ops["LINEAR"]["calls"] > ops["LM_HEAD"]["calls"]
    assert set(profile["limits"]) == {"read", "int8", "bf16", "f32"}
    assert live.request("POST", "/stop_profile")[0] == 400
    live.is_alive()


def test_a_second_start_begins_anew(live: Server) -> None:
    for _ in range(2):
        assert live.request("POST", "/start_profile")[0] == 200
        live.complete("one", max_tokens=2)
    assert live.post("/stop_profile", None)[1]["num_steps"] == 2


def test_a_reset_forgets_prefixes(live: Server) -> None:
    prompt = "the same words again and again, " * 8
    live.complete(prompt, max_tokens=1)
    assert live.post("/reset_prefix_cache", None) == (200, {"success": True})


def test_server_info_is_the_configuration_in_use(live: Server) -> None:
    info = json.loads(live.request("GET", "/server_info?config_format=json")[2])
    assert info["vllm_config"]["server"]["port"] == live.port
    assert info["vllm_config"]["model"]["architecture"] == "LlamaForCausalLM"
    assert info["vllm_env"]["OCTAVO_SERVER_DEV_MODE"] == "1"
