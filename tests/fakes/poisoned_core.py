"""`main` of an EngineCore process that is whole but for the faults a request can ask for.

A regular expression with one of `GRAMMAR_FAULTS` in its text fails at that point of its life;
`vllm_xargs: {"poison": ...}` with one of `ADMISSION_FAULTS` when it is queued; a prompt that begins
with `EVENT_FAULT` when its blocks are published. Everything else is as `octavo/launch/core.py` has
it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from octavo.config.engine import EngineConfig
from octavo.core.engine_core import EngineCore
from octavo.core.engine_core_proc import run_engine_core
from octavo.errors import InvalidParameter
from octavo.launch.executors import make_executor
from octavo.launch.grammar_backend import open_grammar_backend
from octavo.messages.engine import EngineCoreRequest
from octavo.messages.grammar import Grammar, Vocabulary
from octavo.messages.kv_events import BlockStored, KVEventBatch
from octavo.structured_output.backend import (
    CompiledGrammar,
    GrammarBackend,
    GrammarError,
    MaskQueue,
    MaskRow,
    Matcher,
)
from octavo.structured_output.manager import StructuredOutputManager
from octavo.structured_output.request_grammars import RequestGrammars
from octavo.transport.child import child_args

TARGET = "tests.fakes.poisoned_core:main"
GRAMMAR_FAULTS = (
    "compile-slow", "compile-bug", "compile-error", "start-bug", "row-bug", "mask-bug",
    "mask-error", "fill-error", "accept-bug", "accept-error", "end-bug",
)  # fmt: skip
ADMISSION_FAULTS = ("refuse", "add-bug", "too-long")
EVENT_FAULT = (77, 77, 77)
COMPILE_BUDGET_S = 0.4


class _Bug(RuntimeError):
    """What nobody foresees."""

    def __init__(self) -> None:
        super().__init__("as asked")


class FaultyMatcher:
    """A matcher that fails at its third token."""

    def __init__(self, matcher: Matcher, fault: str) -> None:
        self._matcher = matcher
        self._fault = fault
        self._num_accepted = 0

    @property
    def handle(self) -> int:
        """The sampler asks the library's matcher, unless masks are what fails."""
        if self._fault == "fill-error" and self._num_accepted == 2:
            with contextlib.suppress(GrammarError):
                self._matcher.accept(0)  # it has failed from now on
        return 0 if self._fault.startswith(("mask", "row")) else self._matcher.handle

    def row(self, queue: MaskQueue, words: Any) -> FaultyMaskRow:
        if self._fault == "row-bug":
            raise _Bug
        return FaultyMaskRow(queue.row(self._matcher, words), self)

    def look_at_mask(self) -> None:
        self._have("mask")

    def accept(self, token_id: int) -> None:
        self._have("accept")
        self._num_accepted += 1
        self._matcher.accept(token_id)

    @property
    def is_complete(self) -> bool:
        self._have("end")
        return self._matcher.is_complete

    def _have(self, where: str) -> None:
        if self._num_accepted == 2 and self._fault == f"{where}-bug":
            raise _Bug
        if self._num_accepted == 2 and self._fault == f"{where}-error":
            raise GrammarError("as asked")


class FaultyMaskRow:
    """A mask that fails when its matcher says so."""

    def __init__(self, inner: MaskRow, matcher: FaultyMatcher) -> None:
        self.inner = inner
        self._matcher = matcher

    def raise_error(self) -> None:
        self._matcher.look_at_mask()
        self.inner.raise_error()


class FaultyMaskQueue:
    """The library's queue, which also takes faulty matchers."""

    def __init__(self, queue: MaskQueue) -> None:
        self._queue = queue

    def row(self, matcher: Matcher, words: Any) -> MaskRow:
        is_faulty = isinstance(matcher, FaultyMatcher)
        return matcher.row(self._queue, words) if is_faulty else self._queue.row(matcher, words)

    def add(self, rows: Sequence[MaskRow]) -> None:
        self._queue.add([row.inner if isinstance(row, FaultyMaskRow) else row for row in rows])

    def pause(self) -> None:
        self._queue.pause()

    def wait(self) -> None:
        self._queue.wait()

    def close(self) -> None:
        self._queue.close()


class FaultyGrammar:
    """A compiled grammar with one of the faults."""

    def __init__(self, grammar: CompiledGrammar, fault: str) -> None:
        self._grammar = grammar
        self._fault = fault

    def start(self) -> FaultyMatcher:
        if self._fault == "start-bug":
            raise _Bug
        return FaultyMatcher(self._grammar.start(), self._fault)

    def learn(self, ended: Matcher) -> None:
        pass


class FaultyBackend:
    """The grammar library, and the faults."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._backend: GrammarBackend = open_grammar_backend(vocabulary)

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        fault = next((fault for fault in GRAMMAR_FAULTS if fault in grammar.text), None)
        if fault == "compile-slow":
            threading.Event().wait(2 * COMPILE_BUDGET_S)
        if fault == "compile-bug":
            raise _Bug
        if fault == "compile-error":
            raise GrammarError("as asked")
        compiled = self._backend.compile(grammar)
        return compiled if fault is None else FaultyGrammar(compiled, fault)

    def check(self, grammar: Grammar) -> None:
        self._backend.check(grammar)

    @property
    def matcher_calls(self) -> tuple[int, int]:
        return self._backend.matcher_calls

    def mask_queue(self) -> FaultyMaskQueue:
        return FaultyMaskQueue(self._backend.mask_queue())


class FaultyPublisher:
    """Takes no blocks of the prompt with the fault."""

    endpoint = "tcp://127.0.0.1:1"
    replay_endpoint = None

    def publish(self, batch: KVEventBatch) -> None:
        for event in batch.events:
            if isinstance(event, BlockStored) and tuple(event.token_ids[:3]) == EVENT_FAULT:
                raise _Bug

    def close(self) -> None:
        pass


def _add_request(core: EngineCore, request: EngineCoreRequest) -> None:
    poison = (request.sampling_params.extra_args or {}).get("poison")
    if poison == "refuse":
        raise InvalidParameter("poison=refuse is too much for this model.", param="poison")
    if poison == "add-bug":
        raise _Bug
    if poison == "too-long":  # as if the front end had not known how large the cache is
        request = msgspec.structs.replace(request, prompt_token_ids=[1] * 1_000_000)
    core._scheduler.add_request(request)


def _make_structured_output(config: EngineConfig) -> StructuredOutputManager:
    return RequestGrammars(FaultyBackend, asks_matchers=True, compile_budget_s=COMPILE_BUDGET_S)


def main() -> None:
    """Runs the process."""
    EngineCore.add_request = _add_request  # type: ignore[method-assign]
    sys.exit(
        run_engine_core(
            child_args(),
            make_executor,
            make_kv_events=lambda config: FaultyPublisher(),
            make_structured_output=_make_structured_output,
        )
    )
