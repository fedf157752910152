"""The grammars of running requests: `StructuredOutputManager` over a grammar library.

A request's matcher moves with the tokens that count, so it is right after preemption, after a
failed step and with several steps on their way (the scheduler holds back who must see its last
token). Masks of a step are filled by a thread of their own while the step's forward pass computes.

Made by: `octavo/launch`. Used by: `octavo/core`. Uses: `compiler.py`, `number_guard.py`,
`reasoning_gate.py`.
Runs in: EngineCore. Owns: one matcher per request. Knows nothing of: schemas, steps, blocks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np

from octavo.messages.engine import EngineCoreRequest
from octavo.messages.grammar import Vocabulary
from octavo.structured_output.backend import GrammarBackend, GrammarError, Matcher
from octavo.structured_output.compiler import CompileJob, GrammarCompiler
from octavo.structured_output.manager import GrammarEnd, GrammarFailure
from octavo.structured_output.number_guard import DigitTokens, NumberGuard
from octavo.structured_output.reasoning_gate import ReasoningGate
from octavo.structured_output.token_texts import TokenTexts
from octavo.transport.process_name import name_thread
from octavo.wording import first_line

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

logger = logging.getLogger(__name__)

#: the library's own limits end a compile sooner; a machine may be slow
COMPILE_BUDGET_S = 30.0


class _Constrained:
    """One request."""

    __slots__ = ("error", "gate", "guard", "is_request_error", "job", "matcher", "since_s")

    def __init__(self, job: CompileJob, since_s: float, gate: ReasoningGate | None) -> None:
        self.job = job
        self.since_s = since_s
        self.gate = gate  # None: there is no reasoning
        self.matcher: Matcher | None = None  # once compiled
        self.guard: NumberGuard | None = None
        self.error: str | None = None  # why there is no right mask, or no matcher
        self.is_request_error = True  # `error` is the client's to mend


class RequestGrammars:
    """See the module. One thread calls; masks are filled by another.

    Args:
        make_backend: opens the library with a vocabulary; called in the background.
        compile_budget_s: most seconds a request waits for its grammar, once the library is open.
        clock: seconds.
    """

    def __init__(
        self,
        make_backend: Callable[[Vocabulary], GrammarBackend],
        *,
        compile_budget_s: float = COMPILE_BUDGET_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._compiler = GrammarCompiler(make_backend)
        self._budget_s = compile_budget_s
        self._clock = clock
        self._tokens: TokenTexts | None = None
        self._digits: DigitTokens | None = None
        self._num_words = 0
        self._filler: ThreadPoolExecutor | None = None
        self._requests: dict[str, _Constrained] = {}
        self._compiling: set[str] = set()

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        """The tokens; once is enough."""
        if self._tokens is None:
            # on first use: a start does without
            from concurrent.futures import ThreadPoolExecutor

            self._tokens = TokenTexts(vocabulary)
            self._digits = DigitTokens(self._tokens)
            self._num_words = -(-vocabulary.vocab_size // 32)
            self._compiler.set_vocabulary(vocabulary)
            self._filler = ThreadPoolExecutor(
                1, "octavo-masks", initializer=name_thread, initargs=("octavo-masks",)
            )

    def add(self, request: EngineCoreRequest) -> None:
        """Starts to compile a request's grammar, if it has one and nobody has done it before."""
        if request.grammar is not None:
            job = self._compiler.hold(request.grammar)
            gate, marks = None, request.sampling_params.reasoning
            if marks is not None:
                assert self._tokens is not None, "the vocabulary comes first"
                gate = ReasoningGate(self._tokens, marks)
            self._requests[request.request_id] = _Constrained(job, self._clock(), gate)
            self._compiling.add(request.request_id)

    def constrains(self, request_id: str) -> bool:
        """True if the request has a grammar."""
        return request_id in self._requests

    def is_ready(self, request_id: str) -> bool:
        """True if the request has no grammar, or a compiled one."""
        if request_id in self._compiling:
            self._look(request_id)
        return request_id not in self._compiling

    def _look(self, request_id: str) -> None:
        """Begins the output if the grammar is compiled by now."""
        request = self._requests[request_id]
        future = request.job.future
        if request.error is not None or not future.done() or future.exception() is not None:
            return
        try:
            request.matcher = future.result().start()
        except Exception as error:  # the request ends with it (`_failure`), everybody else goes on
            logger.exception("A grammar could not be started.")
            request.error = f"The grammar could not be started: {_said(error)}."
            return
        if request.job.grammar.is_json:
            assert self._digits is not None
            request.guard = NumberGuard(self._digits)
        self._compiling.remove(request_id)

    def take_failures(self) -> Sequence[GrammarFailure]:
        """Requests whose grammar was refused or took too long."""
        if not self._compiling:
            return ()
        failures = [self._failure(request_id) for request_id in self._compiling]
        return [failure for failure in failures if failure is not None]

    def _failure(self, request_id: str) -> GrammarFailure | None:
        request = self._requests[request_id]
        future = request.job.future
        if not future.done():
            if not self._compiler.is_open:
                request.since_s = self._clock()
            if self._clock() - request.since_s <= self._budget_s:
                return None
            return GrammarFailure(
                request_id,
                f"The grammar of the request took more than {self._budget_s:g} s to compile; "
                "make it smaller.",
            )
        if request.error is not None:
            return GrammarFailure(request_id, request.error, is_request_error=False)
        error = future.exception()
        if error is None:
            return None
        if isinstance(error, GrammarError):
            return GrammarFailure(
                request_id, f"The grammar of the request cannot be used: {error}."
            )
        logger.error("A grammar could not be compiled.", exc_info=error)
        return GrammarFailure(
            request_id,
            f"The grammar could not be compiled: {_said(error)}.",
            is_request_error=False,
        )

    def masks(self, request_ids: Sequence[str]) -> Future[bytearray]:
        """Masks, being filled in the background."""
        assert self._filler is not None
        requests = [self._requests[request_id] for request_id in request_ids]
        # the thread keeps the matchers alive, whatever happens to the requests meanwhile
        return self._filler.submit(_fill, requests, self._num_words)

    def accept(self, request_id: str, token_ids: Sequence[int]) -> GrammarEnd | None:
        """Advances a request; not None if its output is complete or wrong."""
        request = self._requests[request_id]
        matcher, guard, gate = request.matcher, request.guard, request.gate
        assert matcher is not None
        if request.error is not None:
            return GrammarEnd(request.error, is_request_error=request.is_request_error)
        try:
            for token_id in token_ids:
                if gate is not None and gate.takes(token_id):
                    continue
                matcher.accept(token_id)
                if guard is not None:
                    guard.accept(token_id)
            return GrammarEnd() if matcher.is_complete else None
        except GrammarError as error:
            return GrammarEnd(f"The output left its grammar: {error}.")
        except Exception as error:  # everybody else in the step goes on
            logger.exception("A grammar could not be advanced.")
            return GrammarEnd(
                f"The grammar could not be advanced: {_said(error)}.", is_request_error=False
            )

    def forget(self, request_id: str) -> None:
        """The request has ended."""
        request = self._requests.pop(request_id, None)
        if request is not None:
            self._compiling.discard(request_id)
            self._compiler.release(request.job)

    def close(self) -> None:
        """Ends the threads."""
        self._compiler.close()
        if self._filler is not None:
            self._filler.shutdown(wait=False, cancel_futures=True)


def _fill(requests: Sequence[_Constrained], num_words: int) -> bytearray:
    """Fills all masks. A failure is noted at its request, whose mask is then of no importance."""
    masks = bytearray(len(requests) * num_words * 4)
    rows = np.frombuffer(masks, np.uint32).reshape(len(requests), num_words)
    address, row_bytes = rows.ctypes.data, num_words * 4
    for index, (request, row) in enumerate(zip(requests, rows, strict=True)):
        try:
            gate = request.gate
            if gate is None or not gate.is_open:
                assert request.matcher is not None
                request.matcher.fill_mask(address + index * row_bytes, row_bytes)
                if request.guard is not None:
                    request.guard.narrow(row)
            if gate is not None:
                gate.widen(row)
        except GrammarError as error:
            request.error = (
                f"The request's grammar cannot be followed from here on: {error}. Simplify it."
            )
            row[:] = 0xFFFFFFFF
        except Exception as error:  # the step and everybody else in it go on
            logger.exception("A mask could not be filled.")
            request.error = f"What the grammar allows could not be computed: {_said(error)}."
            request.is_request_error = False
            row[:] = 0xFFFFFFFF
    return masks


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}"
