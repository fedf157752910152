"""A core that computes nothing: what is left of a server with it is the front end.

Each request is answered with its own prompt's tokens over and over, one per step, with log
probabilities if it asks for them. A step takes `PLAYED_STEP_MS` (environment, default 10) however
many requests there are, as with a model: a core without a pace would pile its outputs up, and the
front end would look cheaper than it is.

    python -m benchmarks.played_core FLAGS...       `octavo serve FLAGS...` with this core
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass

from octavo.config.engine import EngineConfig
from octavo.messages.codec import FromCore, MessageEncoder, ReplyKind, ToCoreDecoder
from octavo.messages.engine import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    FinishReason,
    Hello,
    Ready,
    RequestEvents,
    SchedulerStats,
    Shutdown,
    TokenLogprobs,
)
from octavo.transport.child import child_args, die_with_parent
from octavo.transport.zmq_socket import ZmqChannel

TARGET = "benchmarks.played_core:main"


@dataclass
class _Running:
    request: EngineCoreRequest
    num_sent: int = 0

    def advance(self) -> EngineCoreOutput:
        request, params = self.request, self.request.sampling_params
        prompt = request.prompt_token_ids
        token_id = prompt[self.num_sent % len(prompt)]
        self.num_sent += 1
        output = EngineCoreOutput(request.request_id, [token_id])
        if params.logprobs is not None:
            others = [i for i in prompt[: params.logprobs + 1] if i != token_id][: params.logprobs]
            scores = [-0.25 - 0.5 * rank for rank in range(len(others) + 1)]
            ranks = list(range(1, len(others) + 2))
            output.logprobs = [TokenLogprobs([token_id, *others], scores, ranks)]
        if self.num_sent == params.max_tokens:
            output.finish_reason = FinishReason.LENGTH
        if self.num_sent == 1 or output.finish_reason is not None:
            output.events = RequestEvents(time.monotonic(), time.monotonic())
        return output


class PlayedCore:
    """The loop of the process.

    Args:
        channel: to the front end.
        step_s: length of a step.
    """

    def __init__(self, channel: ZmqChannel, step_s: float) -> None:
        self._channel = channel
        self._step_s = step_s
        self._encoder = MessageEncoder()
        self._decoder = ToCoreDecoder()
        self._running: dict[str, _Running] = {}
        self._is_over = False

    def run(self) -> None:
        """Until the front end says that it is over."""
        self._say(Hello(0, os.getpid()))
        next_s = 0.0
        while not self._is_over:
            now_s = time.monotonic()
            self._channel.wait(max(next_s - now_s, 0.0) if self._running else None)
            for frame in self._channel.receive():
                self._take(frame)
            now_s = time.monotonic()
            if self._running and now_s >= next_s:
                next_s = max(next_s, now_s - self._step_s) + self._step_s
                self._step(now_s)

    def _take(self, frame: bytes) -> None:
        message = self._decoder.decode(frame)
        if isinstance(message, EngineCoreRequest):
            self._running[message.request_id] = _Running(message)
        elif isinstance(message, list):
            for request_id in message:
                self._running.pop(request_id, None)
        elif isinstance(message, EngineConfig):
            self._say(Ready(0, message.model.max_model_len, 1024, 16, 16384, 512, 256, "float32"))
        elif isinstance(message, Shutdown):
            self._is_over = True

    def _step(self, now_s: float) -> None:
        outputs = [running.advance() for running in self._running.values()]
        stats = SchedulerStats(len(outputs), num_scheduled_tokens=len(outputs))
        self._say(EngineCoreOutputs(0, outputs, stats, now_s))
        for output in outputs:
            if output.finish_reason is not None:
                del self._running[output.request_id]

    def _say(self, message: FromCore) -> None:
        is_outputs = isinstance(message, EngineCoreOutputs)
        kind = ReplyKind.OUTPUTS if is_outputs else ReplyKind.HANDSHAKE
        self._channel.send(self._encoder.encode(kind, message))


def main() -> None:
    """The core's process."""
    args = child_args()
    die_with_parent(args)
    channel = ZmqChannel.connect(args.options["address"])
    PlayedCore(channel, float(os.environ.get("PLAYED_STEP_MS", "10")) / 1e3).run()
    channel.close(1.0)


def serve() -> int:
    """The API process: the real one, told to start this core."""
    from octavo.cli.main import main as cli
    from octavo.launch import serve as launch

    launch.CORE_TARGET = TARGET
    sys.argv = ["octavo", "serve", *sys.argv[1:]]
    return cli()


if __name__ == "__main__":
    sys.exit(serve())
