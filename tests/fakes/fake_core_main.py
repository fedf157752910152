"""`main` of an EngineCore process with the fake executor, as `octavo/launch.py` has a real one.

The model's name in the configuration says what goes wrong: `fail-load`, `crash-load`, `fail-step`,
`crash-step` (the process is gone at once), `hang-load`, `hang-step`, `slow-step` (20 ms),
`refuse` (the core finds that a request asks for the impossible).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import Future

from octavo.config.engine import EngineConfig
from octavo.core.engine_core import EngineCore
from octavo.core.engine_core_proc import run_engine_core
from octavo.errors import InvalidParameter, StartupError
from octavo.messages.engine import EngineCoreRequest
from octavo.messages.step import ModelRunnerOutput, PendingMasks, SchedulerOutput
from octavo.transport.child import child_args
from tests.fakes.fake_executor import FakeExecutor

TARGET = "tests.fakes.fake_core_main:main"


class TroubledExecutor(FakeExecutor):
    """Has the trouble its name says."""

    def __init__(self, trouble: str) -> None:
        super().__init__()
        self._trouble = trouble

    def load(self) -> None:
        self._have("load")
        super().load()

    def execute_model(
        self, scheduled: SchedulerOutput, grammar_masks: PendingMasks | None = None
    ) -> Future[ModelRunnerOutput]:
        try:
            self._have("step")
        except StartupError as error:
            failed: Future[ModelRunnerOutput] = Future()
            failed.set_exception(RuntimeError(error.message))
            return failed
        return super().execute_model(scheduled, grammar_masks)

    def _have(self, where: str) -> None:
        if self._trouble == f"fail-{where}":
            raise StartupError(f"The fake model cannot {where}.")
        if self._trouble == f"crash-{where}":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._trouble == f"hang-{where}":
            threading.Event().wait()
        if self._trouble == f"slow-{where}":
            threading.Event().wait(0.02)


def main() -> None:
    """Runs the process."""
    sys.exit(run_engine_core(child_args(), _make_executor))


def _refuse(core: EngineCore, request: EngineCoreRequest) -> None:
    raise InvalidParameter("top_z=7 is too much for this model.", param="top_z")


def _make_executor(config: EngineConfig) -> FakeExecutor:
    if config.model.model == "refuse":
        EngineCore.add_request = _refuse  # type: ignore[method-assign]
    return TroubledExecutor(config.model.model)
