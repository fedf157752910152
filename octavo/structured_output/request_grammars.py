"""The grammars of running requests: `StructuredOutputManager` over a grammar library.

A request's matcher moves with the tokens that count, so it is right after preemption, after a
failed step and with several steps on their way (the scheduler holds back who must see its last
token). A sampler in the same process asks it about the token that was drawn, and for a mask only if
it refuses that. Elsewhere, and where more than the grammar decides, a thread of its own begins to
fill the next mask as soon as the matcher has moved: beside what the core does between two steps,
when all compute threads but one have nothing to do.

Made by: `octavo/launch`. Used by: `octavo/core`. Uses: `compiler.py`, `number_guard.py`,
`reasoning_gate.py`.
Runs in: EngineCore. Owns: one matcher per request. Knows nothing of: schemas, steps, blocks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from octavo.messages.engine import EngineCoreRequest
from octavo.messages.grammar import Vocabulary
from octavo.messages.step import GrammarMasks
from octavo.structured_output.backend import (
    GrammarBackend,
    GrammarError,
    MaskQueue,
    MaskRow,
    Matcher,
)
from octavo.structured_output.compiler import CompileJob, GrammarCompiler
from octavo.structured_output.manager import GrammarEnd, GrammarFailure
from octavo.structured_output.number_guard import DigitTokens, NumberGuard
from octavo.structured_output.reasoning_gate import ReasoningGate
from octavo.structured_output.token_texts import TokenTexts
from octavo.wording import first_line

if TYPE_CHECKING:
    from octavo.structured_output.backend import Words

logger = logging.getLogger(__name__)

#: the library's own limits end a compile sooner; a machine may be slow
COMPILE_BUDGET_S = 30.0


class _Constrained:
    """One request."""

    __slots__ = (
        "error", "gate", "guard", "is_asked", "is_begun", "is_request_error", "job", "mask",
        "matcher", "since_s", "words",
    )  # fmt: skip

    def __init__(self, job: CompileJob, since_s: float, gate: ReasoningGate | None) -> None:
        self.job = job
        self.since_s = since_s
        self.gate = gate  # None: there is no reasoning
        self.matcher: Matcher | None = None  # once compiled
        self.mask: MaskRow | None = None  # once one is wanted; writes `words`
        self.words: Words | None = None
        self.is_begun = False  # the mask, for the matcher as it is
        self.is_asked = False  # the matcher, by a step that may be running
        self.guard: NumberGuard | None = None
        self.error: str | None = None  # why there is no right mask, or no matcher
        self.is_request_error = True  # `error` is the client's to mend

    def note_bug(self, error: Exception) -> None:
        """There is no right mask, and it is our fault."""
        logger.error("A mask could not be filled.", exc_info=error)
        self.error = f"What the grammar allows could not be computed: {_said(error)}."
        self.is_request_error = False


class RequestGrammars:
    """See the module. One thread calls; masks are filled by another.

    Args:
        make_backend: opens the library with a vocabulary; called in the background.
        asks_matchers: the sampler is in this process and knows `ov_matcher_calls`.
        compile_budget_s: most seconds a request waits for its grammar, once the library is open.
        clock: seconds.
    """

    def __init__(
        self,
        make_backend: Callable[[Vocabulary], GrammarBackend],
        *,
        asks_matchers: bool = False,
        compile_budget_s: float = COMPILE_BUDGET_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._compiler = GrammarCompiler(make_backend)
        self._asks_matchers = asks_matchers
        self._matcher_calls = (0, 0)
        self._budget_s = compile_budget_s
        self._clock = clock
        self._tokens: TokenTexts | None = None
        self._digits: DigitTokens | None = None
        self._num_words = 0
        self._queue: MaskQueue | None = None
        self._moved: list[_Constrained] = []  # took a token, and go on
        self._requests: dict[str, _Constrained] = {}
        self._compiling: set[str] = set()

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        """The tokens; once is enough."""
        if self._tokens is None:
            self._tokens = TokenTexts(vocabulary)
            self._digits = DigitTokens(self._tokens)
            self._num_words = -(-vocabulary.vocab_size // 32)
            self._compiler.set_vocabulary(vocabulary)

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

    def begin_masks(self) -> None:
        """Begins to fill the masks of requests that have moved."""
        self._begin([request for request in self._moved if not self._matcher_to_ask(request)])
        self._moved.clear()

    def masks(self, request_ids: Sequence[str]) -> StepMasks:
        """Masks, most of which are being filled since their requests moved, or matchers."""
        requests = [self._requests[request_id] for request_id in request_ids]
        matchers = [self._matcher_to_ask(request) for request in requests]
        masked = []
        for request, matcher in zip(requests, matchers, strict=True):
            request.is_asked = matcher != 0
            if not matcher:
                masked.append(request)
        self._begin(masked)
        if any(matchers) and not any(self._matcher_calls):
            self._matcher_calls = self._compiler.backend.matcher_calls
        grammars = GrammarMasks(memoryview(b""), matchers, self._matcher_calls)
        return StepMasks(requests, masked, self._num_words, self._queue, grammars)

    def _matcher_to_ask(self, request: _Constrained) -> int:
        """By the sampler; 0: it needs a mask, as more than the matcher decides."""
        is_alone = (request.guard is None or not request.guard.narrows) and (
            request.gate is None or not request.gate.widens
        )
        if not (self._asks_matchers and is_alone):
            return 0
        assert request.matcher is not None, "it comes after the compile"
        return request.matcher.handle

    def _begin(self, requests: Sequence[_Constrained]) -> None:
        """Begins their masks, unless they have been begun or reasoning is open, inside of which the
        grammar does not matter."""
        begun: list[MaskRow] = []
        for request in requests:
            if request.is_begun or (request.gate is not None and request.gate.is_open):
                continue
            try:
                begun.append(self._mask(request))
                request.is_begun = True
            except Exception as error:  # the step and everybody else in it go on
                request.note_bug(error)
        if begun:
            assert self._queue is not None
            self._queue.add(begun)

    def _mask(self, request: _Constrained) -> MaskRow:
        if self._queue is None:
            self._queue = self._compiler.backend.mask_queue()
        if request.mask is None:
            assert request.matcher is not None, "it comes after the compile"
            request.words = np.empty(self._num_words, np.uint32)
            request.mask = self._queue.row(request.matcher, request.words)
        return request.mask

    def accept(self, request_id: str, token_ids: Sequence[int]) -> GrammarEnd | None:
        """Advances a request; not None if its output is complete or wrong."""
        request = self._requests[request_id]
        matcher, guard, gate = request.matcher, request.guard, request.gate
        assert matcher is not None
        request.is_begun = request.is_asked = False
        if request.error is not None:
            return GrammarEnd(request.error, is_request_error=request.is_request_error)
        try:
            for token_id in token_ids:
                if gate is not None and gate.takes(token_id):
                    continue
                matcher.accept(token_id)
                if guard is not None:
                    guard.accept(token_id)
            if matcher.is_complete:
                return GrammarEnd()
            self._moved.append(request)
            return None
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
        if request is None:
            return
        is_in_use = request.is_asked or request.is_begun  # by a step that will not be taken
        if request.matcher is not None and request.error is None and not is_in_use:
            request.job.future.result().learn(request.matcher)
        self._compiling.discard(request_id)
        self._compiler.release(request.job)
        if request in self._moved:
            self._moved.remove(request)

    def close(self) -> None:
        """Ends the threads."""
        self._compiler.close()
        if self._queue is not None:
            self._queue.close()
            self._queue = None


class StepMasks:
    """The masks of a step; see `PendingMasks`.

    Args:
        requests: all; their matchers are kept while the step lives.
        masked: those that get a mask.
        queue: None if no mask is being filled.
        grammars: the result but for the masks.
    """

    def __init__(
        self,
        requests: Sequence[_Constrained],
        masked: Sequence[_Constrained],
        num_words: int,
        queue: MaskQueue | None,
        grammars: GrammarMasks,
    ) -> None:
        self._requests = requests
        self._masked = masked
        self._num_words = num_words
        self._queue = queue
        self._grammars = grammars

    def pause(self) -> None:
        """See `PendingMasks`."""
        if self._masked and self._queue is not None:
            self._queue.pause()

    def result(self) -> GrammarMasks:
        """Waits, and completes the masks. A failure is noted at its request, whose mask is then of
        no importance."""
        if self._masked and self._queue is not None:
            self._queue.wait()
        rows = np.empty((len(self._masked), self._num_words), np.uint32)
        for request, row in zip(self._masked, rows, strict=True):
            try:
                if request.is_begun and request.mask is not None and request.words is not None:
                    request.mask.raise_error()
                    row[:] = request.words
                    if request.guard is not None:
                        request.guard.narrow(row)
                if request.gate is not None:
                    request.gate.widen(row)
            except GrammarError as error:
                request.error = (
                    f"The request's grammar cannot be followed from here on: {error}. Simplify it."
                )
            except Exception as error:  # the step and everybody else in it go on
                request.note_bug(error)
            if request.error is not None:
                row[:] = 0xFFFFFFFF
        self._grammars.words = rows.data.cast("B") if len(rows) else memoryview(b"")
        return self._grammars


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}"
