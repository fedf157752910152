"""`--kv-events-config`."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.config.engine import KVEventsConfig
from octavo.config.rules.choice import Choice
from octavo.config.rules.kv_events import choose_kv_events
from octavo.errors import ConfigError


def choose(given: dict[str, Any] | None, **options: Any) -> Choice[KVEventsConfig | None]:
    return choose_kv_events(
        given, **{"use_int_block_hashes": True, "has_prefix_cache": True, **options}
    )


@pytest.mark.parametrize(
    "given",
    [None, {}, {"publisher": "null"}, {"enable_kv_cache_events": True, "publisher": "null"}],
)
def test_nothing_is_published_by_default(given: dict[str, Any] | None) -> None:
    assert choose(given) == Choice(None)


def test_enabled_means_zmq_on_port_5557_and_says_who_can_listen() -> None:
    config, reason = choose({"enable_kv_cache_events": True})
    assert config == KVEventsConfig(
        endpoint="tcp://*:5557",
        replay_endpoint=None,
        buffer_steps=10_000,
        hwm=100_000,
        max_queue_size=100_000,
        topic="",
    )
    assert "tcp://*:5557" in reason
    assert "token ids of prompts" in reason


def test_every_key_arrives() -> None:
    given = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": "ipc:///tmp/events",
        "replay_endpoint": "tcp://127.0.0.1:5558",
        "buffer_steps": 0,
        "hwm": 0,
        "max_queue_size": 1,
        "topic": "kv@pod@model",
    }
    config = choose(given, use_int_block_hashes=False).value
    assert config == KVEventsConfig(
        endpoint="ipc:///tmp/events",
        replay_endpoint="tcp://127.0.0.1:5558",
        buffer_steps=0,
        hwm=0,
        max_queue_size=1,
        topic="kv@pod@model",
        use_int_block_hashes=False,
    )


def test_null_means_the_default() -> None:
    given = {"enable_kv_cache_events": True, "publisher": None, "replay_endpoint": None}
    assert choose(given) == choose({"enable_kv_cache_events": True})


def test_what_will_not_happen_is_said() -> None:
    config, reason = choose({"publisher": "zmq"})
    assert config is None
    assert "enable_kv_cache_events is not true" in reason
    config, reason = choose({"enable_kv_cache_events": True}, has_prefix_cache=False)
    assert config is not None
    assert "--enable-prefix-caching is off" in reason


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("endpint", "tcp://*:1", "endpint does not exist; the keys are enable_kv_cache_events, "),
        ("enable_kv_cache_events", "yes", "must be true or false, got 'yes'"),
        ("publisher", "kafka", "must be one of null, zmq, got 'kafka'"),
        ("publisher", 1, "must be a string, got 1"),
        ("topic", 5, "must be a string, got 5"),
        ("buffer_steps", "10", "must be an integer, got '10'"),
        ("hwm", True, "must be an integer, got True"),
        ("hwm", -1, "must be between 0 and 2147483647, got -1"),
        ("max_queue_size", 0, "must be between 1 and 2147483647, got 0"),
        ("buffer_steps", 2**31, "must be between 0 and 2147483647, got 2147483648"),
        ("endpoint", "*:5557", "must be an address such as tcp://"),
        ("endpoint", "tcp://*", "must be an address such as tcp://"),
        ("endpoint", "tcp://*:70000", "must be an address such as tcp://"),
        ("replay_endpoint", "http://x:1", "must be an address such as tcp://"),
        ("replay_endpoint", "", "must be an address such as tcp://"),
    ],
)
def test_mistakes_name_the_key_and_the_value(key: str, value: object, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choose({"enable_kv_cache_events": True, key: value})
    assert caught.value.message.startswith(f"--kv-events-config.{key} ")
    assert why in caught.value.message
