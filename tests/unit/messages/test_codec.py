from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.messages.codec import (
    BadMessage,
    FromCore,
    FromCoreDecoder,
    MessageEncoder,
    ReplyKind,
    ToCore,
    ToCoreDecoder,
    request_id_of,
)
from octavo.messages.engine import (
    EngineCoreOutput,
    EngineCoreOutputs,
    FinishReason,
    Hello,
    PhaseTiming,
    Ready,
    RequestEvents,
    RequestKind,
    SchedulerStats,
    Shutdown,
    StartFailed,
    TokenLogprobs,
    UtilityCall,
    UtilityResult,
)
from octavo.sampling_params import SamplingParams
from tests.fakes.engine_config import engine_config
from tests.fakes.requests import core_request

READY = Ready(0, 100, 5, 16, 64, 512, 8, "float32", ["note"], [PhaseTiming("p", "n", 1.0, 2.0)])
OUTPUTS = EngineCoreOutputs(
    1,
    [
        EngineCoreOutput("a", [1]),
        EngineCoreOutput(
            "b",
            [],
            FinishReason.ERROR,
            logprobs=[TokenLogprobs([1], [-0.5], [1])],
            prompt_logprobs=[None, TokenLogprobs([2], [-1.5], [3])],
            events=RequestEvents(1.0, 2.0, 3),
            error="why",
        ),
    ],
    SchedulerStats(num_running_reqs=2),
    timestamp_s=9.5,
    utility_result=UtilityResult(3, True),
)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (RequestKind.ADD, core_request("a", [1, 2], stop_token_ids=[4], seed=3)),
        (RequestKind.ABORT, ["a", "b"]),
        (RequestKind.UTILITY, UtilityCall(1, "ping", ["x", 2])),
        (RequestKind.SHUTDOWN, Shutdown(2.5)),
        (RequestKind.CONFIG, engine_config()),
    ],
)
def test_what_a_front_end_sends_arrives_as_it_was(kind: RequestKind, message: ToCore) -> None:
    frame = bytes(MessageEncoder().encode(kind, message))
    assert ToCoreDecoder().decode(frame) == message


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (ReplyKind.HANDSHAKE, Hello(0, 42)),
        (ReplyKind.HANDSHAKE, READY),
        (ReplyKind.HANDSHAKE, StartFailed("no", 2, "trace")),
        (ReplyKind.OUTPUTS, OUTPUTS),
    ],
)
def test_what_a_core_sends_arrives_as_it_was(kind: ReplyKind, message: FromCore) -> None:
    frame = bytes(MessageEncoder().encode(kind, message))
    assert FromCoreDecoder().decode(frame) == message


def test_the_buffer_is_used_again() -> None:
    encoder = MessageEncoder()
    long = bytes(encoder.encode(RequestKind.ABORT, ["x" * 1000]))
    short = encoder.encode(RequestKind.ABORT, ["y"])
    assert len(short) < len(long)
    assert ToCoreDecoder().decode(bytes(short)) == ["y"]


@given(st.binary(max_size=60))
def test_no_frame_raises_anything_but_bad_message(frame: bytes) -> None:
    for decoder in (ToCoreDecoder(), FromCoreDecoder()):
        with contextlib.suppress(BadMessage):
            decoder.decode(frame)


@given(data=st.data())
def test_no_damaged_request_raises_anything_but_bad_message(data: st.DataObject) -> None:
    frame = MessageEncoder().encode(RequestKind.ADD, core_request("abc", [1, 2, 3]))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(1, len(frame) - 1))
        frame[position] = data.draw(st.integers(0, 255))
    try:
        ToCoreDecoder().decode(bytes(frame))
    except BadMessage:
        request_id_of(bytes(frame))


def test_a_value_that_sampling_params_refuse_is_a_bad_message() -> None:
    body = msgspec.to_builtins(core_request("abc"))
    body[2] = {"temperature": -1.0}
    frame = bytes([RequestKind.ADD]) + msgspec.msgpack.encode(body)
    with pytest.raises(BadMessage, match="temperature"):
        ToCoreDecoder().decode(frame)
    assert request_id_of(frame) == "abc"


@pytest.mark.parametrize(
    "frame", [b"", b"\x00", b"\x00\x80", b"\x00\x91\x01", b"\x01\x90", b"\xff"]
)
def test_frames_without_a_request_id_have_none(frame: bytes) -> None:
    assert request_id_of(frame) is None


def test_default_sampling_params_take_a_few_bytes() -> None:
    assert len(msgspec.msgpack.encode(SamplingParams())) < 8
