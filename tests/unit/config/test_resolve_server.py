"""Flags and environment -> `ServerConfig`."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.config.args import ServerArgs
from octavo.config.resolve_server import resolve_server
from octavo.config.server import ServerConfig
from octavo.envs import read_environ
from octavo.errors import ConfigError


def server(environ: dict[str, str] | None = None, **options: Any) -> ServerConfig:
    return resolve_server(ServerArgs(**options), read_environ(environ or {}))


def test_the_servers_defaults() -> None:
    config = server()
    assert config == ServerConfig(notes=config.notes)
    assert len(config.notes) == 1
    assert "without a key" in config.notes[0]


def test_the_servers_flags_and_variables() -> None:
    config = server(
        {
            "VLLM_API_KEY": "k",
            "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "9",
            "VLLM_SERVER_DEV_MODE": "1",
            "OCTAVO_MAX_STOP_STRINGS": "8",
            "OCTAVO_MAX_COMPLETION_PROMPTS": "2",
        },
        port=0,
        disable_access_log_for_endpoints="/health, /metrics,",
        allowed_origins='["https://a"]',
        default_chat_template_kwargs={"x": 1},
        shutdown_timeout=0,
        sse_keep_alive_interval=2.5,
        enable_log_requests=True,
        enable_log_outputs=True,
        api_key_guards_metrics=True,
    )
    assert config.api_keys == ["k"]
    assert config.notes == []
    assert (config.port, config.http_timeout_keep_alive_s) == (0, 9)
    assert config.dev_mode
    assert config.log_error_stack
    assert (config.max_stop_strings, config.max_completion_prompts) == (8, 2)
    assert config.disable_access_log_for_endpoints == ["/health", "/metrics"]
    assert config.allowed_origins == ["https://a"]
    assert config.default_chat_template_kwargs == {"x": 1}
    assert (config.shutdown_timeout_s, config.sse_keep_alive_interval_s) == (0.0, 2.5)
    assert config.api_key_guards_metrics


def test_the_stack_flag_comes_before_dev_mode() -> None:
    assert not server({"VLLM_SERVER_DEV_MODE": "1"}, log_error_stack=False).log_error_stack


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"enable_log_outputs": True}, "--enable-log-outputs needs --enable-log-requests"),
        ({"ssl_certfile": "/none"}, "--ssl-certfile /none cannot be read"),
        ({"uds": "/none/s"}, "the folder does not exist"),
        ({"chat_template": "none.jinja"}, "neither a template nor a file"),
        ({"allowed_origins": "[1]"}, "--allowed-origins must be a JSON list of strings"),
        ({"sse_keep_alive_interval": -1}, "--sse-keep-alive-interval must be at least 0"),
    ],
)
def test_the_servers_contradictions_are_found_before_anything_starts(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        server(**options)
