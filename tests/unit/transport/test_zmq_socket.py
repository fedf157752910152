from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from octavo.errors import StartupError
from octavo.transport.zmq_socket import AsyncZmqChannel, ZmqChannel

LIMIT_S = 10.0


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[ZmqChannel, ZmqChannel]]:
    path = str(tmp_path / "s")
    front = ZmqChannel.bind(path)
    core = ZmqChannel.connect(path)
    yield front, core
    core.close()
    front.close()


def receive(channel: ZmqChannel, count: int) -> list[bytes]:
    frames: list[bytes] = []
    while len(frames) < count:
        assert channel.wait(LIMIT_S), f"only {len(frames)} of {count} frames arrived"
        frames += channel.receive()
    return frames


def test_frames_arrive_in_order_both_ways(ends: tuple[ZmqChannel, ZmqChannel]) -> None:
    front, core = ends
    for n in range(1000):
        assert core.send(b"%d" % n)
    assert receive(front, 1000) == [b"%d" % n for n in range(1000)]
    assert front.send(bytearray(b"back"))
    assert receive(core, 1) == [b"back"]


def test_large_frames_are_whole(ends: tuple[ZmqChannel, ZmqChannel]) -> None:
    front, core = ends
    frame = os.urandom(3_000_000)
    core.send(frame)
    assert receive(front, 1) == [frame]


def test_a_reused_buffer_may_be_changed_after_sending(
    ends: tuple[ZmqChannel, ZmqChannel],
) -> None:
    front, core = ends
    buffer = bytearray(b"a" * 200_000)  # ZMQ sends large messages without a copy if it is let
    core.send(buffer)
    buffer[:] = b"b" * 200_000
    assert receive(front, 1) == [b"a" * 200_000]


def test_receiving_nothing_does_not_wait(ends: tuple[ZmqChannel, ZmqChannel]) -> None:
    front, _ = ends
    assert front.receive() == []
    assert not front.wait(0.0)


def test_sending_to_nobody_says_so_and_does_not_wait(tmp_path: Path) -> None:
    front = ZmqChannel.bind(str(tmp_path / "s"))
    assert not front.send(b"x")
    front.close()


def test_the_core_may_come_first(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    core = ZmqChannel.connect(path)
    core.send(b"hello")
    front = ZmqChannel.bind(path)
    assert receive(front, 1) == [b"hello"]
    core.close()
    front.close()


def test_last_words_leave_before_the_channel_closes(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    front = ZmqChannel.bind(path)
    core = ZmqChannel.connect(path)
    core.send(b"last words")
    core.close(linger_s=LIMIT_S)
    assert receive(front, 1) == [b"last words"]
    front.close()
    front.close()


def test_wait_with_sees_the_other_descriptor(ends: tuple[ZmqChannel, ZmqChannel]) -> None:
    front, core = ends
    read_end, write_end = os.pipe()
    assert front.wait_with(read_end, 0.0) == (False, False)
    os.close(write_end)
    assert front.wait_with(read_end, LIMIT_S) == (False, True)
    core.send(b"x")
    receive(front, 1)
    os.close(read_end)


def test_a_socket_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"cannot be made: .*Set TMPDIR"):
        ZmqChannel.bind(str(tmp_path / "no" / "such" / "folder"))


def on_loop(body: Callable[[asyncio.AbstractEventLoop], asyncio.Future[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(body(asyncio.get_running_loop()), LIMIT_S)

    asyncio.run(main())


def test_on_a_loop_frames_are_handed_over_as_they_arrive(
    ends: tuple[ZmqChannel, ZmqChannel],
) -> None:
    front, core = ends
    core.send(b"early")
    receive_first = front.wait(LIMIT_S)
    assert receive_first
    got: list[bytes] = []

    def body(loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        done = loop.create_future()

        def take(frames: list[bytes]) -> None:
            got.extend(frames)
            if len(got) == 1:
                core.send(b"late")
            else:
                channel.close()
                channel.close()
                done.set_result(None)

        channel = AsyncZmqChannel(front, loop, take)
        return done

    on_loop(body)
    assert got == [b"early", b"late"]


def test_on_a_loop_a_frame_whose_signal_a_send_swallowed_is_handed_over(
    ends: tuple[ZmqChannel, ZmqChannel],
) -> None:
    """The descriptor is edge-triggered, and ZMQ takes the edge away when it works for a send."""
    front, core = ends
    core.send(b"connected")
    receive(front, 1)
    got: list[bytes] = []

    def body(loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        done = loop.create_future()

        def take(frames: list[bytes]) -> None:
            got.extend(frames)
            done.set_result(None)

        def answer_comes_while_sending() -> None:
            core.send(b"answer")
            assert is_readable(front.fileno(), LIMIT_S)
            while is_readable(front.fileno(), 0):
                channel.send(b"question")
            assert got == []

        channel = AsyncZmqChannel(front, loop, take)
        # after the channel's own first look, so that only a send can bring another one
        loop.call_soon(loop.call_soon, answer_comes_while_sending)
        return done

    on_loop(body)
    assert got == [b"answer"]


def is_readable(fd: int, timeout_s: float) -> bool:
    return bool(select.select([fd], [], [], timeout_s)[0])
