"""The EngineCore process: handshake, busy loop, last words.

One thread does everything: it reads what front ends have sent, runs a step, sends what came out,
and again; without work it sleeps in a poll. How it ends:

- `Shutdown` message: requests may finish for the given time, then exit status 0;
- the parent's end: at once (`octavo/transport/child.py`);
- a failure in a step: the cause is sent as last words, exit status 1. A message that cannot be
  understood or handled ends nothing: its request, if it has one, gets an error;
- SIGINT and SIGTERM do nothing here: a terminal and a service manager send them to all processes,
  but a core that drains must go on, and only the parent knows.

Neighbours: `octavo/launch.py` (starts it), `octavo/core/engine_core.py`, the front end's client at
the other end of the channel. Runs in: EngineCore. Owns: the loop.
Knows nothing of: scheduling, tensors, which executor there is.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import time
import traceback
from collections.abc import Callable

import msgspec

from octavo.config.engine import EngineConfig
from octavo.core.engine_core import EngineCore
from octavo.core.kv_events import KVEventPublisher
from octavo.core.phase_timer import PhaseTimer
from octavo.errors import OctavoError, RequestError, StartupError
from octavo.executor.base import Executor
from octavo.messages.codec import (
    BadMessage,
    FromCore,
    MessageEncoder,
    ReplyKind,
    ToCoreDecoder,
    request_id_of,
)
from octavo.messages.engine import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    FinishReason,
    Hello,
    Shutdown,
    StartFailed,
    UtilityCall,
    UtilityResult,
)
from octavo.messages.grammar import Vocabulary
from octavo.structured_output.manager import NoStructuredOutput, StructuredOutputManager
from octavo.transport.child import ChildArgs, die_with_parent
from octavo.transport.process_name import name_process
from octavo.transport.zmq_socket import ZmqChannel

logger = logging.getLogger(__name__)

#: how long last words may take to leave
LINGER_S = 2.0
#: pause when requests wait for something other than blocks (a grammar that is being compiled)
IDLE_POLL_S = 0.001
MakeExecutor = Callable[[EngineConfig], Executor]
MakeKVEvents = Callable[[EngineConfig], KVEventPublisher | None]
MakeStructuredOutput = Callable[[EngineConfig], StructuredOutputManager]


def run_engine_core(
    args: ChildArgs,
    make_executor: MakeExecutor,
    *,
    make_kv_events: MakeKVEvents = lambda config: None,
    make_structured_output: MakeStructuredOutput = lambda config: NoStructuredOutput(),
    configure: Callable[[EngineConfig], None] = lambda config: None,
) -> int:
    """The whole life of the process.

    Args:
        args: what the parent said; options: `address` (path of its socket) and `engine_index`
            (number of this engine among data-parallel ones).
        make_executor: the executor for a configuration; called once.
        make_kv_events: takes events of the prefix cache, or None; called once.
        make_structured_output: grammars; called once.
        configure: called with the configuration before anything is made of it (log set-up).

    Returns:
        The exit status.
    """
    die_with_parent(args)
    engine_index = int(args.options["engine_index"])
    name_process("Octavo::EngineCore" + (f"_DP{engine_index}" if engine_index else ""))
    faulthandler.enable()  # a crash in native code says where
    timer = PhaseTimer("EngineCore", args.started_s)
    timer.end("interpreter and imports")
    proc = EngineCoreProc(ZmqChannel.connect(args.options["address"]), engine_index)
    try:
        core = proc.start(make_executor, make_kv_events, make_structured_output, configure, timer)
        return 1 if core is None else proc.serve(core)
    finally:
        proc.close()


class EngineCoreProc:
    """The loop around an `EngineCore`.

    Args:
        channel: to the front end.
        engine_index: number of this engine among data-parallel ones.
    """

    def __init__(self, channel: ZmqChannel, engine_index: int) -> None:
        self._channel = channel
        self._engine_index = engine_index
        self._encoder = MessageEncoder()
        self._decoder = ToCoreDecoder()
        self._drain_until_s: float | None = None  # set once the end is asked for

    def start(
        self,
        make_executor: MakeExecutor,
        make_kv_events: MakeKVEvents,
        make_structured_output: MakeStructuredOutput,
        configure: Callable[[EngineConfig], None],
        timer: PhaseTimer,
    ) -> EngineCore | None:
        """Handshake and start-up. None if it failed; the front end has been told why."""
        try:
            self._say(Hello(self._engine_index, os.getpid()))
            config = self._await_config()
            timer.end("wait for configuration")
            configure(config)
            core = EngineCore(
                config,
                make_executor(config),
                structured_output=make_structured_output(config),
                kv_events=make_kv_events(config),
                phases=timer,
                engine_index=self._engine_index,
            )
            _freeze_heap()
            timer.end("freeze heap")
            self._say(core.ready)
        except StartupError as error:
            self._say(StartFailed(error.message, error.exit_code, traceback.format_exc()))
            return None
        except Exception as error:
            # not foreseen: the sentence is ours, the trace is for the one who reports it
            self._say(StartFailed(_one_sentence(error), 1, traceback.format_exc()))
            return None
        return core

    def serve(self, core: EngineCore) -> int:
        """Runs steps until the end is asked for or a step fails; returns the exit status."""
        try:
            self._loop(core)
        except Exception as error:
            logger.exception("The engine core cannot go on.")
            self._say(EngineCoreOutputs(self._engine_index, dead=_one_sentence(error)))
            return 1
        finally:
            core.shutdown()
        return 0

    def close(self) -> None:
        """Closes the channel once last words have left."""
        self._channel.close(LINGER_S)

    def _loop(self, core: EngineCore) -> None:
        channel = self._channel
        while True:
            start_s, in_step_s = time.monotonic(), core.times.step_s
            for frame in channel.receive():
                self._handle(core, frame)
            if self._drain_until_s is not None and self._drain(core, self._drain_until_s):
                return
            outputs = core.step()
            if outputs is not None:
                self._say(outputs)
                in_step_s = core.times.step_s - in_step_s
                core.times.io_s += time.monotonic() - start_s - in_step_s
            elif not core.has_work and self._drain_until_s is None:
                core.idle()
                channel.wait(None)
            else:
                channel.wait(IDLE_POLL_S)

    def _drain(self, core: EngineCore, until_s: float) -> bool:
        """True once nothing is left to do. After the time is over, what runs is ended."""
        if time.monotonic() >= until_s:
            core.abort_all()
        return not core.has_work

    def _handle(self, core: EngineCore, frame: bytes) -> None:
        """One message. Nothing in it can end the loop."""
        try:
            message = self._decoder.decode(frame)
            if isinstance(message, EngineCoreRequest):
                self._add(core, message)
            elif isinstance(message, list):
                core.abort_requests(message)
            elif isinstance(message, UtilityCall):
                self._answer(core, message)
            elif isinstance(message, Shutdown):
                self._drain_until_s = time.monotonic() + message.timeout_s
            else:
                raise BadMessage("the configuration comes once, at start")
        except Exception as error:
            logger.exception("A message was dropped.")
            request_id = request_id_of(frame)
            if request_id is not None:
                self._refuse(
                    request_id,
                    FinishReason.ERROR,
                    _one_sentence(error),
                    is_request_error=isinstance(error, RequestError),
                )

    def _add(self, core: EngineCore, request: EngineCoreRequest) -> None:
        if self._drain_until_s is None:
            core.add_request(request)
        else:
            self._refuse(request.request_id, FinishReason.ABORT, "The server is shutting down.")

    def _answer(self, core: EngineCore, call: UtilityCall) -> None:
        result = UtilityResult(call.call_id)
        try:
            if call.method == "reset_prefix_cache":
                result.result = core.reset_prefix_cache(preempt_running=call.args == [True])
            elif call.method == "step_times":
                result.result = core.times
            elif call.method == "set_vocabulary":
                core.set_vocabulary(msgspec.convert(call.args[0], Vocabulary))
            elif call.method == "start_profile":
                core.start_profile()
            elif call.method == "stop_profile":
                result.result = core.stop_profile()
            elif call.method == "ping":
                core.check_health()
                result.result = "pong"
            else:
                result.error = f"The engine core has no call {call.method!r}."
        except OctavoError as error:
            result.error = error.message
        except Exception as error:
            logger.exception("The call %s failed.", call.method)
            result.error = _one_sentence(error)  # someone waits for an answer
        self._say(EngineCoreOutputs(self._engine_index, utility_result=result))

    def _refuse(
        self, request_id: str, reason: FinishReason, error: str, *, is_request_error: bool = False
    ) -> None:
        output = EngineCoreOutput(
            request_id,
            [],
            finish_reason=reason,
            error=error,
            is_request_error=is_request_error,
        )
        self._say(EngineCoreOutputs(self._engine_index, [output], timestamp_s=time.monotonic()))

    def _await_config(self) -> EngineConfig:
        while True:
            self._channel.wait(None)
            for frame in self._channel.receive():
                message = self._decoder.decode(frame)
                if isinstance(message, EngineConfig):
                    return message
                raise BadMessage("the first message must be the configuration")

    def _say(self, message: FromCore) -> None:
        is_outputs = isinstance(message, EngineCoreOutputs)
        kind = ReplyKind.OUTPUTS if is_outputs else ReplyKind.HANDSHAKE
        self._channel.send(self._encoder.encode(kind, message))


def _freeze_heap() -> None:
    """What start-up made lives as long as the process: no collection need look at it, ever. Until
    now the collector was off (`octavo/transport/process.py`)."""
    gc.freeze()
    gc.enable()
    logger.debug("Garbage collector: %d objects of the start are frozen.", gc.get_freeze_count())


def _one_sentence(error: Exception) -> str:
    if isinstance(error, OctavoError):
        return error.message
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text}"
