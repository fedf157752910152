"""Publishes numbered messages to whoever subscribes, and replays the last ones on request.

    PUB     [topic, sequence, payload]            to every subscriber; slow ones lose messages
    ROUTER  request [empty, start]                from a REQ or DEALER socket
            replies [empty, topic, sequence, payload] ..., then [empty, "", -1, ""]

Sequence and start are 8 bytes, big-endian; the wire format is that of vLLM 0.32
(`vllm/distributed/kv_events.py`). A number belongs to an event from the moment it is published, so
an event that is dropped because too many wait is a gap that subscribers see.

`publish` never waits: a thread of its own packs and sends. Neighbours: `octavo/core/kv_events.py`
(makes the events). Runs in: EngineCore. Owns: two ZMQ sockets, a thread, the replay buffer.
Knows nothing of: what the events mean.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable

import zmq

from octavo.errors import StartupError
from octavo.transport.process_name import name_thread

logger = logging.getLogger(__name__)

END_OF_REPLAY = (-1).to_bytes(8, "big", signed=True)
#: how long `close` waits for what has been published to be sent, and then for it to leave
CLOSE_S = 1.0
#: pause between two complaints about dropped events
COMPLAINT_INTERVAL_S = 10.0


class EventPublisher:
    """One stream of events.

    Attributes:
        endpoint: where subscribers connect; with the port that was bound, if 0 was asked for.
        replay_endpoint: where replays are asked for.

    Args:
        encode: makes an event's payload; called on the publisher's thread.
        endpoint: bound if it has a `*`, a wildcard address, port 0, or is no TCP address;
            otherwise connected, and subscribers bind.
        replay_endpoint: bound; None: no replays.
        topic: first frame of every message.
        hwm: messages kept for a slow subscriber; 0: no limit.
        max_queue_size: events that may wait for the thread; then the oldest are dropped.
        buffer_steps: messages kept for replays.

    Raises:
        StartupError: an address cannot be used.
    """

    def __init__(
        self,
        encode: Callable[[object], bytes],
        *,
        endpoint: str,
        replay_endpoint: str | None = None,
        topic: str = "",
        hwm: int = 100_000,
        max_queue_size: int = 100_000,
        buffer_steps: int = 10_000,
    ) -> None:
        self._encode = encode
        self._topic = topic.encode()
        self._queue: deque[tuple[int, object]] = deque()
        self._max_queue_size = max_queue_size
        self._buffer: deque[tuple[bytes, bytes]] = deque(
            maxlen=0 if replay_endpoint is None else buffer_steps
        )
        self._next_sequence = 0
        self._num_dropped = 0
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        try:
            self._pub = self._context.socket(zmq.PUB)
            self._pub.sndhwm = hwm
            self.endpoint = _open(self._pub, endpoint, binds=_is_bound(endpoint))
            self.replay_endpoint: str | None = None
            self._replay: zmq.Socket[bytes] | None = None
            if replay_endpoint is not None:
                self._replay = self._context.socket(zmq.ROUTER)
                self._replay.sndhwm = buffer_steps + 1  # a whole replay and its end
                self.replay_endpoint = _open(self._replay, replay_endpoint, binds=True)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="octavo-events", daemon=True)
        self._thread.start()

    @property
    def num_dropped(self) -> int:
        """Events that were dropped because too many waited."""
        return self._num_dropped

    def publish(self, event: object) -> None:
        """Queues an event, which must not be changed any more. Not for several threads."""
        if len(self._queue) >= self._max_queue_size:
            with contextlib.suppress(IndexError):  # the thread has just taken the last one
                self._queue.popleft()
                self._num_dropped += 1
        self._queue.append((self._next_sequence, event))
        self._next_sequence += 1
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Sends what waits, as far as it can be sent soon, and ends. Idempotent."""
        if self._is_closing:
            return
        self._is_closing = True
        os.eventfd_write(self._wake, 1)
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():  # otherwise it goes with the process
            os.close(self._wake)
            self._context.destroy(linger=int(CLOSE_S * 1000))

    # the publisher's thread

    def _run(self) -> None:
        name_thread("octavo-events")
        poller = zmq.Poller()
        poller.register(self._wake, zmq.POLLIN)
        if self._replay is not None:
            poller.register(self._replay, zmq.POLLIN)
        complained_s, num_complained = -COMPLAINT_INTERVAL_S, 0
        while True:
            ready = dict(poller.poll())
            is_last = self._is_closing  # what was published before is in the queue by now
            if self._replay is not None and self._replay in ready:
                self._serve_replays(self._replay)
            if self._wake in ready:
                os.eventfd_read(self._wake)
            self._send_queue()
            now_s = time.monotonic()
            num_dropped = self._num_dropped
            if num_dropped > num_complained and (
                is_last or now_s - complained_s >= COMPLAINT_INTERVAL_S
            ):
                logger.warning(
                    "KV events: %d batches were dropped, %d in all: more than %d waited to be "
                    "sent. Subscribers see gaps in the sequence.",
                    num_dropped - num_complained,
                    num_dropped,
                    self._max_queue_size,
                )
                complained_s, num_complained = now_s, num_dropped
            if is_last:
                return

    def _send_queue(self) -> None:
        while True:
            try:
                number, event = self._queue.popleft()
            except IndexError:
                return
            sequence = number.to_bytes(8, "big")
            try:
                payload = self._encode(event)
            except Exception:
                # our mistake; subscribers see a gap, and steps go on
                logger.exception("KV events: batch %d cannot be packed.", number)
                continue
            # a PUB socket never waits: a subscriber whose queue is full misses the message
            self._pub.send_multipart((self._topic, sequence, payload))
            self._buffer.append((sequence, payload))

    def _serve_replays(self, socket: zmq.Socket[bytes]) -> None:
        while True:
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(frames) != 3 or frames[1] or len(frames[2]) != 8:
                logger.warning("KV events: a replay request must be an empty frame and 8 bytes.")
                continue
            peer, _, start = frames
            for sequence, payload in self._buffer:
                if sequence >= start:  # big-endian numbers sort like their bytes
                    socket.send_multipart((peer, b"", self._topic, sequence, payload))
            socket.send_multipart((peer, b"", b"", END_OF_REPLAY, b""))


def _is_bound(endpoint: str) -> bool:
    """vLLM's rule; and all interfaces, or any port, are nothing to connect to."""
    return (
        "*" in endpoint
        or "::" in endpoint
        or "//0.0.0.0:" in endpoint
        or endpoint.endswith(":0")
        or not endpoint.startswith("tcp://")
    )


def _open(socket: zmq.Socket[bytes], endpoint: str, *, binds: bool) -> str:
    """Binds or connects; the endpoint with its real port."""
    if "[" in endpoint or "::" in endpoint:
        socket.ipv6 = True
    try:
        if not binds:
            socket.connect(endpoint)
            return endpoint
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise StartupError(
            f"--kv-events-config: the address {endpoint} cannot be used: {error.strerror}. "
            "Name a free port of this machine."
        ) from error
    host, _, port = endpoint.rpartition(":")
    if port not in ("0", "*") or not endpoint.startswith("tcp://"):
        return endpoint
    bound = socket.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(bound, bytes)
    return f"{host}:{bound.rstrip(bytes(1)).decode().rpartition(':')[2]}"
