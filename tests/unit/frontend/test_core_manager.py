"""Real processes: a core with a fake executor at the other end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from octavo.config.engine import EngineConfig
from octavo.errors import StartupError
from octavo.frontend.core_manager import CoreEngineProcManager
from tests.fakes.engine_config import engine_config
from tests.fakes.fake_core_main import TARGET


def config(trouble: str = "none") -> EngineConfig:
    made = engine_config(max_model_len=64)
    return msgspec.structs.replace(made, model=msgspec.structs.replace(made.model, model=trouble))


@contextmanager
def manager(target: str = TARGET, ready_timeout_s: float = 60.0) -> Iterator[CoreEngineProcManager]:
    made = CoreEngineProcManager(target, ready_timeout_s=ready_timeout_s)
    try:
        yield made
    finally:
        made.close()
        made.close()
        assert made.child.poll() is not None
        assert not os.path.exists(made.socket_path)


def test_the_core_becomes_ready_and_says_what_it_has() -> None:
    with manager() as core:
        core.configure(config())
        ready = core.ready.result(timeout=30)
        assert ready.max_model_len == 64
        assert ready.num_blocks > 1
        assert "load weights" in {phase.name for phase in ready.phases}
        assert core.child.poll() is None


def test_a_start_that_fails_says_the_cores_own_sentence() -> None:
    with manager() as core:
        core.configure(config("fail-load"))
        with pytest.raises(StartupError, match=r"^The fake model cannot load\.$"):
            core.ready.result(timeout=30)


def test_a_core_that_crashes_while_loading_is_reported_with_its_signal() -> None:
    with manager() as core:
        core.configure(config("crash-load"))
        with pytest.raises(StartupError, match=r"did not start: EngineCore .* SIGKILL"):
            core.ready.result(timeout=30)


def test_a_core_that_cannot_even_be_imported_is_reported_with_its_status() -> None:
    with manager("tests.fakes.no_such_module:main") as core:
        core.configure(config())
        with pytest.raises(StartupError, match=r"did not start: .* exit status 1"):
            core.ready.result(timeout=30)


def test_a_core_that_takes_too_long_is_given_up() -> None:
    with manager(ready_timeout_s=0.2) as core:
        core.configure(config("hang-load"))
        with pytest.raises(StartupError, match=r"not ready after 0\.2 s; VLLM_ENGINE_READY"):
            core.ready.result(timeout=30)


@pytest.mark.parametrize("is_configured", [False, True])
def test_closing_during_the_start_ends_the_process(is_configured: bool) -> None:
    with manager() as core:
        if is_configured:
            core.configure(config("hang-load"))
        core.close()
        assert core.child.poll() == -signal.SIGKILL
        with pytest.raises(StartupError):
            core.ready.result(timeout=30)
