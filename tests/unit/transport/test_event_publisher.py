from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import zmq

from octavo.errors import StartupError
from octavo.transport.event_publisher import END_OF_REPLAY, EventPublisher

LIMIT_MS = 10_000


def encode(event: object) -> bytes:
    assert isinstance(event, bytes)
    return event


class Gate:
    """An encoder that waits until it is let."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_go_on = threading.Event()

    def __call__(self, event: object) -> bytes:
        self.has_begun.set()
        assert self.may_go_on.wait(10)
        return encode(event)


@contextmanager
def publishing(
    encoder: Callable[[object], bytes] = encode, **options: object
) -> Iterator[EventPublisher]:
    publisher = EventPublisher(
        encoder,
        **{"endpoint": "tcp://127.0.0.1:0", **options},  # type: ignore[arg-type]
    )
    try:
        yield publisher
    finally:
        publisher.close()


@contextmanager
def socket(kind: int, endpoint: str) -> Iterator[zmq.Socket[bytes]]:
    with zmq.Context() as context, context.socket(kind) as connected:
        connected.linger = 0
        connected.rcvtimeo = LIMIT_MS
        connected.connect(endpoint)
        yield connected


@contextmanager
def subscribed(publisher: EventPublisher, topic: str = "") -> Iterator[zmq.Socket[bytes]]:
    """A subscriber that has heard something, so it will miss nothing from now on."""
    with socket(zmq.SUB, publisher.endpoint) as subscriber:
        subscriber.subscribe(topic)
        for _ in range(1000):
            publisher.publish(b"hello")
            if subscriber.poll(20):
                break
        while subscriber.poll(100):
            subscriber.recv_multipart()
        yield subscriber


def number(sequence: bytes) -> int:
    return int.from_bytes(sequence, "big", signed=True)


def replay(endpoint: str, start: int) -> list[list[bytes]]:
    with socket(zmq.DEALER, endpoint) as asking:
        asking.send_multipart([b"", start.to_bytes(8, "big")])
        replies = []
        while True:
            empty, *frames = asking.recv_multipart()
            assert empty == b""
            if frames[1] == END_OF_REPLAY:
                assert frames == [b"", END_OF_REPLAY, b""]
                return replies
            replies.append(frames)


def test_subscribers_get_topic_sequence_and_payload_in_order() -> None:
    with publishing(topic="kv@a") as publisher, subscribed(publisher, "kv@a") as subscriber:
        for event in (b"one", b"two", b"three"):
            publisher.publish(event)
        frames = [subscriber.recv_multipart() for _ in range(3)]
        assert [frame[0] for frame in frames] == [b"kv@a"] * 3
        assert [frame[2] for frame in frames] == [b"one", b"two", b"three"]
        sequences = [number(frame[1]) for frame in frames]
        assert all(len(frame[1]) == 8 for frame in frames)
        assert sequences == list(range(sequences[0], sequences[0] + 3))


def test_port_0_is_any_free_port_and_the_real_one_is_told() -> None:
    with publishing(endpoint="tcp://*:0", replay_endpoint="tcp://127.0.0.1:0") as publisher:
        assert publisher.endpoint.startswith("tcp://*:")
        assert not publisher.endpoint.endswith(":0")
        assert publisher.replay_endpoint is not None
        assert publisher.replay_endpoint.startswith("tcp://127.0.0.1:")
        assert not publisher.replay_endpoint.endswith(":0")


def test_what_was_missed_is_replayed_from_a_number_on() -> None:
    with publishing(replay_endpoint="tcp://127.0.0.1:0", topic="t") as publisher:
        with subscribed(publisher) as subscriber:
            for n in range(5):
                publisher.publish(b"%d" % n)
            *_, last = [subscriber.recv_multipart() for _ in range(5)]
        end = number(last[1])
        assert publisher.replay_endpoint is not None
        replies = replay(publisher.replay_endpoint, end - 2)
        assert [(frames[0], number(frames[1]), frames[2]) for frames in replies] == [
            (b"t", end - 2, b"2"),
            (b"t", end - 1, b"3"),
            (b"t", end, b"4"),
        ]
        assert replay(publisher.replay_endpoint, end + 1) == []


def test_only_the_last_steps_are_kept_for_replays() -> None:
    with publishing(replay_endpoint="tcp://127.0.0.1:0", buffer_steps=2) as publisher:
        with subscribed(publisher) as subscriber:
            for n in range(5):
                publisher.publish(b"%d" % n)
            for _ in range(5):
                subscriber.recv_multipart()
        assert publisher.replay_endpoint is not None
        assert [frames[2] for frames in replay(publisher.replay_endpoint, 0)] == [b"3", b"4"]


def test_a_replay_longer_than_zmqs_default_queue_is_whole() -> None:
    with publishing(replay_endpoint="tcp://127.0.0.1:0", buffer_steps=5000) as publisher:
        with subscribed(publisher) as subscriber:
            subscriber.rcvhwm = 0
            for _ in range(5000):
                publisher.publish(b"x")
            publisher.publish(b"last")
            while subscriber.recv_multipart()[2] != b"last":
                pass
        assert publisher.replay_endpoint is not None
        assert len(replay(publisher.replay_endpoint, 0)) == 5000


@pytest.mark.parametrize("frames", [[b""], [b"", b"short"], [b"x", bytes(8)], [b"", bytes(8), b""]])
def test_a_wrong_request_for_a_replay_harms_nobody(
    frames: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    with publishing(replay_endpoint="tcp://127.0.0.1:0") as publisher:
        assert publisher.replay_endpoint is not None
        with socket(zmq.DEALER, publisher.replay_endpoint) as asking:
            asking.send_multipart(frames)
            asking.send_multipart([b"", bytes(8)])
            assert asking.recv_multipart() == [b"", b"", END_OF_REPLAY, b""]
    assert "replay request must be" in caplog.text


def test_publishing_never_waits_and_drops_the_oldest(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    gate.may_go_on.set()
    with publishing(gate, max_queue_size=3) as publisher, subscribed(publisher) as subscriber:
        gate.has_begun.clear()
        gate.may_go_on.clear()
        publisher.publish(b"0")
        assert gate.has_begun.wait(10)  # it is with the thread; what follows waits
        before = publisher.num_dropped
        for n in range(1, 8):
            publisher.publish(b"%d" % n)
        assert publisher.num_dropped - before == 4
        gate.may_go_on.set()
        frames = [subscriber.recv_multipart() for _ in range(4)]
        assert [frame[2] for frame in frames] == [b"0", b"5", b"6", b"7"]
        first = number(frames[0][1])
        assert [number(frame[1]) - first for frame in frames] == [0, 5, 6, 7]  # the gap is seen
    assert "batches were dropped" in caplog.text


def test_an_event_that_cannot_be_packed_is_reported_and_is_a_gap(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with publishing() as publisher, subscribed(publisher) as subscriber:
        publisher.publish(b"a")
        publisher.publish("not bytes")
        publisher.publish(b"b")
        first, second = (subscriber.recv_multipart() for _ in range(2))
        assert number(second[1]) - number(first[1]) == 2
    assert [r.levelno for r in caplog.records if "cannot be packed" in r.message] == [logging.ERROR]


def test_what_was_published_before_the_end_arrives() -> None:
    events = [b"%d" % n for n in range(100)]
    with publishing() as publisher, subscribed(publisher) as subscriber:
        for event in events:
            publisher.publish(event)
        publisher.close()
        assert [subscriber.recv_multipart()[2] for _ in events] == events


def test_an_address_without_a_wildcard_is_connected_and_the_subscriber_binds() -> None:
    with zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
        subscriber.linger = 0
        subscriber.rcvtimeo = LIMIT_MS
        subscriber.subscribe("")
        port = subscriber.bind_to_random_port("tcp://127.0.0.1")
        with publishing(endpoint=f"tcp://127.0.0.1:{port}") as publisher:
            for _ in range(1000):
                publisher.publish(b"x")
                if subscriber.poll(20):
                    break
            assert subscriber.recv_multipart()[2] == b"x"


@pytest.mark.parametrize("role", ["endpoint", "replay_endpoint"])
def test_an_address_in_use_fails_the_start_with_a_sentence(role: str) -> None:
    with publishing(endpoint="tcp://*:0") as other:
        options = {"endpoint": "tcp://127.0.0.1:0", role: other.endpoint}
        with pytest.raises(StartupError, match=r"--kv-events-config: .* cannot be used"):
            EventPublisher(encode, **options)
