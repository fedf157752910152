"""Messages to frames and back: one byte that says the kind, then msgpack.

Written and read by: `octavo/core/engine_core_proc.py` and the front end's client.
Runs in: API process, EngineCore. Owns: the frame's layout, the encoder's buffer.
Knows nothing of: sockets.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

import msgspec

from octavo.config.engine import EngineConfig
from octavo.messages.engine import (
    EngineCoreOutputs,
    EngineCoreRequest,
    Handshake,
    RequestKind,
    Shutdown,
    UtilityCall,
)

T = TypeVar("T")

#: What a front end sends to a core.
ToCore = EngineConfig | EngineCoreRequest | list[str] | UtilityCall | Shutdown
#: What a core sends to a front end.
FromCore = Handshake | EngineCoreOutputs


class ReplyKind(IntEnum):
    """First byte of each core -> front end frame."""

    HANDSHAKE = 0  # body: Handshake
    OUTPUTS = 1  # body: EngineCoreOutputs


class BadMessage(Exception):
    """A frame that is not a message; the text says why."""


class MessageEncoder:
    """Makes frames in one buffer that is used again and again; one thread at a time."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._buffer = bytearray()

    def encode(self, kind: int, body: ToCore | FromCore) -> bytearray:
        """The frame of one message; valid until the next call."""
        self._encoder.encode_into(body, self._buffer, 1)
        self._buffer[0] = kind
        return self._buffer


class ToCoreDecoder:
    """Reads what a front end sends. A bad frame is `BadMessage`, whatever is wrong with it."""

    def __init__(self) -> None:
        self._decoders: dict[int, msgspec.msgpack.Decoder[ToCore]] = {
            RequestKind.ADD: msgspec.msgpack.Decoder(EngineCoreRequest),
            RequestKind.ABORT: msgspec.msgpack.Decoder(list[str]),
            RequestKind.UTILITY: msgspec.msgpack.Decoder(UtilityCall),
            RequestKind.SHUTDOWN: msgspec.msgpack.Decoder(Shutdown),
            RequestKind.CONFIG: msgspec.msgpack.Decoder(EngineConfig),
        }

    def decode(self, frame: bytes) -> ToCore:
        """The message in a frame.

        Raises:
            BadMessage: the frame is empty, of an unknown kind, or its body does not fit.
        """
        return _decode(self._decoders, frame)


class FromCoreDecoder:
    """Reads what a core sends."""

    def __init__(self) -> None:
        self._decoders: dict[int, msgspec.msgpack.Decoder[FromCore]] = {
            ReplyKind.HANDSHAKE: msgspec.msgpack.Decoder(Handshake),
            ReplyKind.OUTPUTS: msgspec.msgpack.Decoder(EngineCoreOutputs),
        }

    def decode(self, frame: bytes) -> FromCore:
        """The message in a frame.

        Raises:
            BadMessage: the frame is empty, of an unknown kind, or its body does not fit.
        """
        return _decode(self._decoders, frame)


def request_id_of(frame: bytes) -> str | None:
    """The request id in an ADD frame whose body does not fit otherwise, if there is one."""
    if not frame or frame[0] != RequestKind.ADD:
        return None
    try:
        body = msgspec.msgpack.decode(memoryview(frame)[1:])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    is_request = isinstance(body, list) and body and isinstance(body[0], str)
    return body[0] if is_request else None


def _decode(decoders: dict[int, msgspec.msgpack.Decoder[T]], frame: bytes) -> T:
    if not frame:
        raise BadMessage("the frame is empty")
    decoder = decoders.get(frame[0])
    if decoder is None:
        raise BadMessage(f"kind {frame[0]} is unknown")
    try:
        return decoder.decode(memoryview(frame)[1:])
    except Exception as error:
        # msgspec's own errors, and those that a struct's checks raise
        raise BadMessage(f"{type(error).__name__}: {error}") from error
