"""A real EngineCore process with the fake executor, and the front end's end of its channel.

python -m tests.fakes.core_process FILE TROUBLE    a front end that keeps its core busy
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import msgspec

from octavo.messages.codec import FromCore, FromCoreDecoder, MessageEncoder, ToCore
from octavo.messages.engine import EngineCoreOutput, EngineCoreOutputs, Ready, RequestKind
from octavo.transport.process import runtime_dir_bases, start_child
from octavo.transport.runtime_dir import RuntimeDir
from octavo.transport.zmq_socket import ZmqChannel
from tests.fakes.child_main import say
from tests.fakes.engine_config import engine_config
from tests.fakes.fake_core_main import TARGET
from tests.fakes.requests import core_request

LIMIT_S = 30.0


class CoreProcess:
    """Use as a context manager; nothing is left afterwards.

    Args:
        trouble: see `fake_core_main.py`.
    """

    def __init__(self, trouble: str = "none") -> None:
        self._trouble = trouble
        self._encoder, self._decoder = MessageEncoder(), FromCoreDecoder()
        self._runtime_dir = RuntimeDir(runtime_dir_bases())
        self.channel = ZmqChannel.bind(self._runtime_dir.socket_path("core0"))
        self.child = start_child(
            "engine core", TARGET, {"address": self.channel.path, "engine_index": "0"}
        )
        self.outputs: dict[str, list[EngineCoreOutput]] = {}
        self.messages: list[FromCore] = []

    def __enter__(self) -> CoreProcess:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.child.close()
        self.channel.close()
        self._runtime_dir.remove()

    def send(self, kind: RequestKind, body: ToCore) -> None:
        self.channel.send(self._encoder.encode(kind, body))

    def add(self, request_id: str, **params: object) -> None:
        request = core_request(request_id, **params)  # type: ignore[arg-type]
        self.send(RequestKind.ADD, request)

    def receive(self, is_enough: Callable[[], bool]) -> None:
        """Takes messages until it is enough; an end of the process before that is a failure."""
        deadline_s = time.monotonic() + LIMIT_S
        while not is_enough():
            left_s = deadline_s - time.monotonic()
            has_frames, has_ended = self.channel.wait_with(self.child.fileno(), left_s)
            assert has_frames or not has_ended, self.child.describe_end()
            assert has_frames, "the core does not say what it should"
            for frame in self.channel.receive():
                self._take(self._decoder.decode(frame))

    def _take(self, message: FromCore) -> None:
        self.messages.append(message)
        if isinstance(message, EngineCoreOutputs):
            for output in message.outputs:
                self.outputs.setdefault(output.request_id, []).append(output)

    def next(self) -> FromCore:
        """The next message."""
        count = len(self.messages)
        self.receive(lambda: len(self.messages) > count)
        return self.messages[count]

    def start(self) -> Ready:
        """Handshake; the core must become ready."""
        self.configure()
        message = self.next()
        assert isinstance(message, Ready), message
        return message

    def configure(self) -> None:
        """Handshake up to the configuration."""
        self.next()
        config = engine_config(max_model_len=20_000)
        model = msgspec.structs.replace(config.model, model=self._trouble)
        self.send(RequestKind.CONFIG, msgspec.structs.replace(config, model=model))

    def finish(self, *request_ids: str) -> list[EngineCoreOutput]:
        """Waits for the last outputs of requests."""

        def ended(request_id: str) -> bool:
            outputs = self.outputs.get(request_id)
            return bool(outputs) and outputs is not None and outputs[-1].finish_reason is not None

        self.receive(lambda: all(map(ended, request_ids)))
        return [self.outputs[request_id][-1] for request_id in request_ids]

    def tokens(self, request_id: str) -> list[int]:
        return [t for output in self.outputs[request_id] for t in output.new_token_ids]


def main(path: str, trouble: str) -> None:
    """Says the core's pid, then keeps it busy for ever."""
    with CoreProcess(trouble) as core:
        say(path, str(core.child.pid))
        core.start()
        for number in range(sys.maxsize):
            core.add(str(number), max_tokens=50)
            core.finish(str(number))
            del core.outputs[str(number)]


if __name__ == "__main__":
    main(*sys.argv[1:])
