from __future__ import annotations

from octavo.config.engine import KVEventsConfig
from octavo.launch.kv_events import make_kv_event_publisher
from tests.fakes.engine_config import engine_config


def test_there_is_no_publisher_unless_it_is_asked_for() -> None:
    assert make_kv_event_publisher(engine_config()) is None


def test_the_publisher_listens_where_the_configuration_says() -> None:
    events = KVEventsConfig(endpoint="tcp://127.0.0.1:0", replay_endpoint="tcp://*:0")
    publisher = make_kv_event_publisher(engine_config(kv_events=events))
    assert publisher is not None
    try:
        assert publisher.replay_endpoint is not None
        assert publisher.replay_endpoint.startswith("tcp://*:")
    finally:
        publisher.close()
