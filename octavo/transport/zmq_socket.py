"""A two-way channel of frames between two processes of one host, over a Unix socket.

Both ends are DEALER sockets without high-water marks: sending never waits, frames arrive in order,
one frame is one message. The end that binds is the front end's.

    front end: ZmqChannel.bind(path)       `receive` when `fileno()` is readable
    core:      ZmqChannel.connect(path)    `receive` between steps, `wait` when idle

Runs in: API process, EngineCore. Owns: the ZMQ socket and context.
Knows nothing of: messages, processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import zmq

from octavo.errors import StartupError

if TYPE_CHECKING:  # the core has no event loop, and importing one takes it 20 ms
    import asyncio

Frame = bytes | bytearray | memoryview


# plain integers: arithmetic with members of an enumeration makes new members
_POLLIN, _NOBLOCK = int(zmq.POLLIN), int(zmq.NOBLOCK)


class ZmqChannel:
    """One end of a channel. Not for several threads.

    Attributes:
        path: of the Unix socket.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.sndhwm = self._socket.rcvhwm = 0
        self._socket.linger = 0

    @classmethod
    def bind(cls, path: str) -> ZmqChannel:
        """The front end's end.

        Raises:
            StartupError: the socket cannot be made.
        """
        channel = cls(path)
        try:
            channel._socket.bind(f"ipc://{path}")
        except zmq.ZMQError as error:
            channel.close()
            raise StartupError(
                f"The engine's socket {path} cannot be made: {error.strerror}. Set TMPDIR to a "
                "folder on a local disk that can be written."
            ) from error
        return channel

    @classmethod
    def connect(cls, path: str) -> ZmqChannel:
        """The core's end; the other one need not be there yet."""
        channel = cls(path)
        channel._socket.connect(f"ipc://{path}")
        return channel

    def send(self, frame: Frame) -> bool:
        """Sends one frame without waiting. False if there is nobody at the other end."""
        try:
            self._socket.send(frame, _NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self) -> list[bytes]:
        """All frames that have arrived, without waiting."""
        # asking is cheaper than the exception that an empty socket raises
        frames = []
        while self._option(zmq.EVENTS) & _POLLIN:
            frames.append(self._socket.recv(_NOBLOCK))
        return frames

    def wait(self, timeout_s: float | None) -> bool:
        """Sleeps until a frame has arrived (True) or the time is over. None: for ever."""
        return bool(self._socket.poll(_milliseconds(timeout_s)))

    def wait_with(self, fd: int, timeout_s: float | None) -> tuple[bool, bool]:
        """Sleeps until a frame has arrived or `fd` is readable; says which, or neither."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(fd, zmq.POLLIN)
        ready = dict(poller.poll(_milliseconds(timeout_s)))
        return self._socket in ready, fd in ready

    def fileno(self) -> int:
        """Becomes readable when frames may have arrived. Edge-triggered: after it, and after each
        `send`, call `receive`."""
        return self._option(zmq.FD)

    def close(self, linger_s: float = 0.0) -> None:
        """Closes the socket; frames on their way are given `linger_s` to leave. Idempotent."""
        self._socket.close(linger=int(linger_s * 1000))
        self._context.term()

    def _option(self, option: int) -> int:
        value = self._socket.getsockopt(option)
        assert isinstance(value, int)
        return value


def _milliseconds(timeout_s: float | None) -> int | None:
    # rounded up: a wait that ends a little early would be repeated in a busy loop
    return None if timeout_s is None else math.ceil(max(0.0, timeout_s) * 1000)


class AsyncZmqChannel:
    """A channel on an event loop: frames are handed to a function as they arrive.

    No thread and no task: the loop watches the socket's descriptor. Must be made on the loop's
    thread.

    Args:
        channel: the channel; from now on it is used through this object.
        loop: the running loop.
        on_frames: takes all frames that have arrived (at least one).
    """

    def __init__(
        self,
        channel: ZmqChannel,
        loop: asyncio.AbstractEventLoop,
        on_frames: Callable[[list[bytes]], None],
    ) -> None:
        self._channel = channel
        self._loop = loop
        self._on_frames = on_frames
        self._fd = channel.fileno()
        self._is_checking = False
        loop.add_reader(self._fd, self._read)
        self._check_later()  # what arrived before now makes no edge

    def send(self, frame: Frame) -> bool:
        """Sends one frame without waiting. False if there is nobody at the other end."""
        sent = self._channel.send(frame)
        self._check_later()
        return sent

    def close(self) -> None:
        """Stops watching and closes the channel. Idempotent."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1
            self._channel.close()

    def _check_later(self) -> None:
        # sending may swallow the edge of a frame that arrives at the same time
        if not self._is_checking:
            self._is_checking = True
            self._loop.call_soon(self._check)

    def _check(self) -> None:
        self._is_checking = False
        if self._fd >= 0:
            self._read()

    def _read(self) -> None:
        frames = self._channel.receive()
        if frames:
            self._on_frames(frames)
