"""Starts the EngineCore process and shakes hands with it.

    manager = CoreEngineProcManager(target)   main thread; the child begins to import
    manager.configure(config)                 as soon as it is known; the child begins to load
    ready = manager.ready.result()            or StartupError

The handshake has a thread of its own: the main thread imports the web stack meanwhile, and the core
must not wait for that to get its configuration.

Neighbours: `octavo/launch.py` (caller), `octavo/frontend/zmq_client.py` (takes the channel over),
`octavo/core/engine_core_proc.py` (the other end). Runs in: API process. Owns: the child process,
the socket's folder. Knows nothing of: requests, event loops.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING

from octavo.config.engine import EngineConfig
from octavo.errors import ConfigError, StartupError
from octavo.messages.codec import FromCoreDecoder, MessageEncoder
from octavo.messages.engine import EngineCoreOutputs, Hello, Ready, RequestKind, StartFailed
from octavo.transport.process import ChildProcess, runtime_dir_bases, start_child
from octavo.transport.process_name import name_thread
from octavo.transport.runtime_dir import RuntimeDir

if TYPE_CHECKING:
    from octavo.transport.zmq_socket import ZmqChannel

logger = logging.getLogger(__name__)

READY_TIMEOUT_S = 600.0
#: after the child has ended, how long what it said before is waited for
LAST_WORDS_S = 0.2


class CoreEngineProcManager:
    """The EngineCore process of this server. Must be made on the main thread.

    Args:
        target: `module:function` that the child runs.
        engine_index: number of this engine among data-parallel ones.
        ready_timeout_s: longest time from here to readiness (`VLLM_ENGINE_READY_TIMEOUT_S`).
        options: what else the child is told; everybody on the machine can see it.

    Raises:
        StartupError: no process or no folder for its socket can be made.
    """

    def __init__(
        self,
        target: str,
        *,
        engine_index: int = 0,
        ready_timeout_s: float = READY_TIMEOUT_S,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._deadline_s = time.monotonic() + ready_timeout_s
        self._timeout_s = ready_timeout_s
        self._runtime_dir = RuntimeDir(runtime_dir_bases())
        self.socket_path = self._runtime_dir.socket_path(f"core{engine_index}")
        self._config: Future[EngineConfig] = Future()
        self._channel: ZmqChannel | None = None
        self._is_closed = False
        #: the core's word that it can answer, or StartupError
        self.ready: Future[Ready] = Future()
        try:
            self.child: ChildProcess = start_child(
                "EngineCore",
                target,
                {"address": self.socket_path, "engine_index": str(engine_index), **(options or {})},
            )
        except BaseException:
            self._runtime_dir.remove()
            raise
        self._thread = threading.Thread(target=self._run, name="octavo-handshake", daemon=True)
        self._thread.start()

    def configure(self, config: EngineConfig) -> None:
        """Gives the core its configuration. Once."""
        self._config.set_result(config)

    def take_channel(self) -> ZmqChannel:
        """The channel to the ready core; from now on the caller's to use and to close."""
        assert self.ready.done(), "the core is not ready"
        self._thread.join()
        channel, self._channel = self._channel, None
        assert channel is not None, "the channel was taken already"
        return channel

    def abandon(self) -> None:
        """For a process that ends in this instant: removes the socket and kills the core, which may
        be too young or too stopped to notice by itself. Any thread."""
        self._runtime_dir.remove()
        self.child.kill()

    def close(self) -> None:
        """Ends the core at once if it still runs, and removes its socket. Idempotent; any state."""
        if self._is_closed:
            return
        self._is_closed = True
        self._config.cancel()
        self.child.kill()  # ends the handshake, too
        self._thread.join()
        self.child.close()
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._runtime_dir.remove()

    # the handshake's thread

    def _run(self) -> None:
        name_thread("octavo-handshake")
        try:
            ready = self._shake_hands()
        except CancelledError:
            self.ready.set_exception(StartupError("The start was given up."))
        except BaseException as error:
            self.ready.set_exception(error)
        else:
            self.ready.set_result(ready)

    def _shake_hands(self) -> Ready:
        # here and not above: importing ZMQ takes as long as half of the child's own start
        from octavo.transport.zmq_socket import ZmqChannel

        channel = self._channel = ZmqChannel.bind(self.socket_path)
        config = self._config.result()
        decoder = FromCoreDecoder()
        is_ended = False
        while True:
            for frame in channel.receive():
                message = decoder.decode(frame)
                if isinstance(message, Hello):
                    channel.send(MessageEncoder().encode(RequestKind.CONFIG, config))
                elif isinstance(message, Ready):
                    return message
                elif isinstance(message, StartFailed):
                    raise _startup_error(message)
                else:
                    assert isinstance(message, EngineCoreOutputs)
                    raise StartupError(f"The engine core ended early: {message.dead}")
            if is_ended:
                raise StartupError(
                    f"The engine core did not start: {self.child.describe_end()}. Its last output, "
                    "above, may say why."
                )
            left_s = self._deadline_s - time.monotonic()
            if left_s <= 0:
                raise StartupError(
                    f"The engine core was not ready after {self._timeout_s:g} s; "
                    "VLLM_ENGINE_READY_TIMEOUT_S allows it more."
                )
            _, is_ended = channel.wait_with(self.child.fileno(), left_s)
            if is_ended:
                channel.wait(LAST_WORDS_S)


def _startup_error(failed: StartFailed) -> StartupError:
    if failed.traceback:
        logger.debug("The engine core's start failed:\n%s", failed.traceback)
    kind = ConfigError if failed.exit_code == ConfigError.exit_code else StartupError
    return kind(failed.message)
