"""Routes of the development switch."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from octavo.config.server import ServerConfig
from octavo.messages.profile import OpTime, Profile
from tests.fakes.api import VERSION, serving

DEV = ServerConfig(dev_mode=True)
ROUTES = [
    ("POST", "/reset_prefix_cache"),
    ("POST", "/reset_mm_cache"),
    ("POST", "/reset_encoder_cache"),
    ("GET", "/server_info"),
    ("POST", "/start_profile"),
    ("POST", "/stop_profile"),
    ("GET", "/is_sleeping"),
    ("POST", "/sleep"),
    ("POST", "/wake_up"),
    ("POST", "/collective_rpc"),
]
PROFILE = Profile(
    [OpTime("LINEAR", 3, 0.5, 100, {"int8": 200})], 1, {"read": 1e9, "int8": 2e9, "f32": 3e9}
)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_dev_routes_exist_only_in_dev_mode(method: str, path: str) -> None:
    async def main() -> None:
        async with serving() as api:
            assert (await api.client.request(method, path)).status == 404
        async with serving(DEV) as api:
            assert (await api.client.request(method, path)).status != 404

    asyncio.run(main())


@pytest.mark.parametrize(
    ("query", "preempts"),
    [
        ("reset_running_requests=true", True),
        ("reset_running_requests=1&reset_external=true", True),
        ("reset_running_requests=False", False),
        ("reset_external=true", False),
    ],
)
def test_a_reset_may_take_running_requests_their_blocks(query: str, preempts: bool) -> None:
    async def main() -> None:
        async with serving(DEV) as api:
            answer = await api.client.request("POST", f"/reset_prefix_cache?{query}")
            assert answer.json == {"success": True}
            assert api.core.calls == [("reset_prefix_cache", preempts)]
            answer = await api.client.request("POST", "/reset_prefix_cache?reset_external=perhaps")
            assert (answer.status, answer.error["param"]) == (400, "reset_external")

    asyncio.run(main())


def test_caches_that_do_not_exist_are_always_empty() -> None:
    async def main() -> None:
        async with serving(DEV) as api:
            for path in ("/reset_mm_cache", "/reset_encoder_cache"):
                answer = await api.client.request("POST", path)
                assert (answer.status, answer.body) == (200, b"")
            assert api.core.calls == []

    asyncio.run(main())


def test_a_profile_is_what_happens_between_start_and_stop() -> None:
    async def main() -> None:
        async with serving(DEV) as api:
            api.core.answers["stop_profile"] = msgspec.to_builtins(PROFILE)  # as it travels
            early = await api.client.request("POST", "/stop_profile")
            assert early.status == 400
            assert "/start_profile first" in early.error["message"]
            assert (await api.client.request("POST", "/start_profile")).status == 200
            answer = await api.client.request("POST", "/stop_profile")
            assert answer.json == msgspec.to_builtins(PROFILE)
            assert api.core.calls == [("start_profile",), ("stop_profile",)]
            assert (await api.client.request("POST", "/stop_profile")).status == 400

    asyncio.run(main())


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({}, 200, None),
        ({"profile_prefix": "x", "delay_iterations": 0, "max_iterations": None}, 200, None),
        ({"delay_iterations": 3}, 400, "delay_iterations"),
        ({"max_iterations": 3}, 400, "max_iterations"),
        ({"max_iterations": "3"}, 400, "max_iterations"),
        ([], 400, "body"),
    ],
)
def test_options_of_a_profile(body: Any, status: int, named: str | None) -> None:
    async def main() -> None:
        async with serving(DEV) as api:
            answer = await api.client.post("/start_profile", body)
            assert answer.status == status
            assert (answer.error["param"] if named else None) == named
            assert len(api.core.calls) == (status == 200)

    asyncio.run(main())


def test_unknown_options_of_a_profile_are_named() -> None:
    async def main() -> None:
        async with serving(DEV) as api:
            answer = await api.client.post("/start_profile", {"with_stack": True})
            assert answer.headers["x-octavo-ignored-fields"] == "with_stack"

    asyncio.run(main())


@pytest.mark.parametrize("form", ["text", "json", None])
def test_server_info_has_vllms_keys_and_no_secrets(
    form: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCTAVO_API_KEY", "sk-of-the-environment")
    monkeypatch.setenv("VLLM_STALL_LIMIT_S", "12")

    async def main() -> None:
        config = ServerConfig(dev_mode=True, api_keys=["sk-of-the-flag"])
        async with serving(config) as api:
            query = "" if form is None else f"?config_format={form}"
            answer = await api.client.get(
                f"/server_info{query}", headers={"x-api-key": "sk-of-the-flag"}
            )
            assert answer.status == 200
            info = answer.json
            assert set(info) == {"vllm_config", "vllm_env", "system_env"}
            assert "sk-" not in json.dumps(info)
            assert info["vllm_env"]["OCTAVO_API_KEY"] == "(hidden)"
            assert info["vllm_env"]["VLLM_STALL_LIMIT_S"] == "12"
            assert info["system_env"]["octavo_version"] == VERSION
            if form == "json":
                assert info["vllm_config"]["cache"]["block_size"] == 16
                assert info["vllm_config"]["server"]["api_keys"] == ["(hidden)"]
            else:
                assert "block_size=16" in info["vllm_config"]
                assert "api_keys=['(hidden)']" in info["vllm_config"]

    asyncio.run(main())


def test_server_info_in_another_format_is_refused() -> None:
    async def main() -> None:
        async with serving(DEV) as api:
            answer = await api.client.get("/server_info?config_format=yaml")
            assert (answer.status, answer.error["param"]) == (400, "config_format")
            assert "text, json" in answer.error["message"]

    asyncio.run(main())


@pytest.mark.parametrize("path", ["/sleep?level=1", "/wake_up", "/collective_rpc", "/pause"])
def test_what_means_nothing_here_says_why(path: str) -> None:
    async def main() -> None:
        async with serving(DEV) as api:
            answer = await api.client.request("POST", path)
            assert answer.status == 400
            assert answer.error["message"].startswith(f"{path.partition('?')[0]} is not available:")
            assert (await api.client.get("/is_sleeping")).json == {"is_sleeping": False}

    asyncio.run(main())
