"""Settings from the environment."""

from __future__ import annotations

import pytest

from octavo.envs import (
    DEFAULTS,
    Env,
    check_unknown,
    is_kubernetes_service_name,
    read_environ,
)
from octavo.errors import ConfigError


def test_nothing_set_gives_the_defaults() -> None:
    assert read_environ({}) == Env()
    assert read_environ({"PATH": "/bin"}) == Env()


def test_both_prefixes_are_read() -> None:
    assert read_environ({"VLLM_API_KEY": "a"}).api_key == "a"
    assert read_environ({"OCTAVO_API_KEY": "b"}).api_key == "b"


def test_our_prefix_comes_first_and_a_difference_names_both() -> None:
    env = read_environ({"OCTAVO_HTTP_TIMEOUT_KEEP_ALIVE": "7", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "8"})
    assert env.http_timeout_keep_alive == 7
    own, vllm = "OCTAVO_HTTP_TIMEOUT_KEEP_ALIVE", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE"
    assert env.warnings == [f"{own} and {vllm} are both set and differ; {own} is used"]


def test_the_same_value_twice_is_silent() -> None:
    assert read_environ({"OCTAVO_API_KEY": "a", "VLLM_API_KEY": "a"}).warnings == []


@pytest.mark.parametrize(
    ("word", "value"), [("1", True), ("true", True), ("0", False), ("False", False), ("", False)]
)
def test_switches_take_words(word: str, value: bool) -> None:
    assert read_environ({"VLLM_SERVER_DEV_MODE": word}).server_dev_mode is value


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("VLLM_SERVER_DEV_MODE", "maybe", "must be 1 or 0, true or false, got 'maybe'"),
        ("OCTAVO_ENGINE_READY_TIMEOUT_S", "soon", "must be a whole number, got 'soon'"),
        ("VLLM_ENGINE_READY_TIMEOUT_S", "-1", "must be a whole number of at least 0, got '-1'"),
        ("VLLM_CPU_KVCACHE_SPACE", "nan", "must be a number of at least 0, got 'nan'"),
        ("VLLM_LOG_STATS_INTERVAL", "x", "must be a number, got 'x'"),
        ("OCTAVO_STALL_LIMIT_S", "0", "must be a number above 0, got '0'"),
        ("VLLM_LOGGING_LEVEL", "loud", "must be DEBUG, INFO, WARNING, ERROR or CRITICAL"),
        ("VLLM_LOGGING_COLOR", "pink", "must be auto, 0 or 1, got 'pink'"),
        ("HF_HUB_OFFLINE", "maybe", "HF_HUB_OFFLINE must be 1 or 0"),
    ],
)
def test_a_wrong_value_names_the_variable_and_the_value(
    name: str, value: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_environ({name: value})
    assert caught.value.message.startswith(name)
    assert sentence in caught.value.message


def test_standard_names_have_no_prefix() -> None:
    env = read_environ(
        {"HF_TOKEN": "hf_x", "HF_HOME": "/h", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1"}
    )
    assert (env.hf_token, env.hf_home, env.no_color) == ("hf_x", "/h", True)
    assert env.is_offline
    assert read_environ({"TRANSFORMERS_OFFLINE": "yes"}).is_offline
    assert not read_environ({}).is_offline


def test_an_empty_no_color_does_not_count() -> None:
    assert not read_environ({"NO_COLOR": ""}).no_color


def test_unknown_names_are_reported_once_and_can_be_an_error() -> None:
    env = read_environ({"VLLM_LOGING_LEVEL": "x", "OCTAVO_NONSENSE": "1", "OTHER": "1"})
    assert env.warnings == [
        "unknown environment variables are ignored: OCTAVO_NONSENSE, VLLM_LOGING_LEVEL"
    ]
    with pytest.raises(ConfigError, match="unknown environment variables: OCTAVO_NONSENSE, VLLM_L"):
        check_unknown(env)
    check_unknown(read_environ({"VLLM_API_KEY": "k"}))


def test_names_without_effect_are_known() -> None:
    env = read_environ({"VLLM_ATTENTION_BACKEND": "x", "VLLM_ROCM_USE_AITER": "1"})
    assert env.unknown == []
    assert env.warnings == [
        "environment variables without effect here: VLLM_ATTENTION_BACKEND, VLLM_ROCM_USE_AITER"
    ]


@pytest.mark.parametrize("name", ["VLLM_NO_USAGE_STATS", "VLLM_DO_NOT_TRACK"])
def test_telemetry_switches_are_silent(name: str) -> None:
    assert read_environ({name: "1"}).warnings == []


#: what a pod sees next to a service `vllm` and one `vllm-chat`
KUBERNETES = {
    "VLLM_SERVICE_HOST": "10.0.0.1",
    "VLLM_SERVICE_PORT": "8000",
    "VLLM_SERVICE_PORT_HTTP": "8000",
    "VLLM_PORT": "tcp://10.0.0.1:8000",
    "VLLM_PORT_8000_TCP": "tcp://10.0.0.1:8000",
    "VLLM_PORT_8000_TCP_PROTO": "tcp",
    "VLLM_PORT_8000_TCP_PORT": "8000",
    "VLLM_PORT_8000_TCP_ADDR": "10.0.0.1",
    "VLLM_CHAT_SERVICE_HOST": "10.0.0.2",
    "VLLM_CHAT_SERVICE_PORT": "8000",
    "VLLM_CHAT_PORT": "tcp://10.0.0.2:8000",
    "VLLM_CHAT_PORT_8000_TCP_ADDR": "10.0.0.2",
    "OCTAVO_SERVICE_HOST": "10.0.0.3",
}


def test_kubernetes_service_variables_are_no_settings() -> None:
    env = read_environ(KUBERNETES)
    assert env.unknown == []
    assert env.warnings == [
        "VLLM_PORT=tcp://10.0.0.1:8000 is ignored: Kubernetes sets it for a service of that name"
    ]


def test_a_setting_is_not_taken_for_a_service_variable() -> None:
    assert not is_kubernetes_service_name("VLLM_API_KEY", "k")
    assert not is_kubernetes_service_name("VLLM_PORT", "8000")
    assert not is_kubernetes_service_name("VLLM_DP_MASTER_PORT", "1234")
    assert is_kubernetes_service_name("OCTAVO_PORT_80_UDP_ADDR", "10.0.0.1")


def test_secrets_do_not_show() -> None:
    env = read_environ({"VLLM_API_KEY": "sk-secret", "HF_TOKEN": "hf_secret"})
    assert repr(env) == "Env(api_key=***, hf_token=***)"


def test_every_setting_can_be_set() -> None:
    samples = {
        "logging_level": "ERROR",
        "configure_logging": "0",
        "kv_events_use_int_block_hashes": "0",
    }
    for field in Env.__struct_fields__:
        if field in ("warnings", "unknown"):
            continue
        names = [field.upper(), f"OCTAVO_{field.upper()}"]
        values = [read_environ({name: samples.get(field, "1")}) for name in names]
        assert any(getattr(env, field) != getattr(DEFAULTS, field) for env in values), field


#: vllm_map section 3, ratings A and B, that have an effect here
GOLDEN_DEFAULTS = {
    "http_timeout_keep_alive": 5,
    "engine_ready_timeout_s": 600,
    "log_stats_interval": 10.0,
    "max_completion_prompts": 1024,
    "max_stop_strings": 4,
    "cpu_omp_threads_bind": "auto",
    "cpu_kvcache_space": None,
    "logging_stream": "ext://sys.stdout",
    "configure_logging": True,
}


def test_defaults_are_vllms() -> None:
    assert {name: getattr(DEFAULTS, name) for name in GOLDEN_DEFAULTS} == GOLDEN_DEFAULTS
