"""Compiles grammars in the background: each once, whoever asks, and only while somebody wants it.

One thread of low priority, so that running streams keep the processor; the library works without
the interpreter's lock. Compiled grammars are kept by content, the least recently used given up when
they take too much memory.

Used by: `request_grammars.py`. Runs in: EngineCore. Owns: the thread, the compiled grammars.
Knows nothing of: requests, steps.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from octavo.messages.grammar import Grammar, Vocabulary
from octavo.platforms.thread_priority import lower_thread_priority
from octavo.structured_output.backend import CompiledGrammar, GrammarBackend
from octavo.transport.process_name import name_thread

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

logger = logging.getLogger(__name__)

MAX_CACHED_BYTES = 256 << 20
#: of a compiled grammar: measured between 60 KiB for small schemas and 40 bytes per character
_SMALLEST_BYTES, _BYTES_PER_CHARACTER = 65_536, 48


class CompileJob:
    """One grammar, compiled or about to be."""

    __slots__ = ("future", "grammar", "num_waiting")

    def __init__(self, grammar: Grammar, future: Future[CompiledGrammar]) -> None:
        self.grammar = grammar
        self.future = future
        self.num_waiting = 0  # requests that hold it

    @property
    def size_bytes(self) -> int:
        """An estimate."""
        return _SMALLEST_BYTES + _BYTES_PER_CHARACTER * len(self.grammar.text)


class GrammarCompiler:
    """All grammars of an engine core. One thread calls.

    Args:
        make_backend: opens the library with a vocabulary; called in the background.
        max_cached_bytes: estimated memory of grammars that no request holds.
    """

    def __init__(
        self,
        make_backend: Callable[[Vocabulary], GrammarBackend],
        *,
        max_cached_bytes: int = MAX_CACHED_BYTES,
    ) -> None:
        self._make_backend = make_backend
        self._max_cached_bytes = max_cached_bytes
        self._thread: ThreadPoolExecutor | None = None
        self._backend: Future[GrammarBackend] | None = None
        self._jobs: dict[Grammar, CompileJob] = {}  # held by requests
        self._unused: OrderedDict[Grammar, CompileJob] = OrderedDict()  # the oldest first
        self._unused_bytes = 0

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Opens the library in the background; again does nothing."""
        if self._backend is None:
            # on first use: a start does without
            from concurrent.futures import ThreadPoolExecutor

            self._thread = ThreadPoolExecutor(
                1, "octavo-grammars", initializer=_begin_thread, initargs=("octavo-grammars",)
            )
            self._backend = self._thread.submit(self._make_backend, vocabulary)

    @property
    def is_open(self) -> bool:
        """False while the library is being opened, which takes a second and more for large
        vocabularies."""
        return self._backend is not None and self._backend.done()

    @property
    def backend(self) -> GrammarBackend:
        """The library, once it is open."""
        assert self._backend is not None
        return self._backend.result()

    def hold(self, grammar: Grammar) -> CompileJob:
        """The job of a grammar, a new one if there is none; `release` it once."""
        job = self._jobs.get(grammar)
        if job is None:
            job = self._unused.pop(grammar, None)
            if job is None:
                job = CompileJob(grammar, self._submit(grammar))
            else:
                self._unused_bytes -= job.size_bytes
            self._jobs[grammar] = job
        job.num_waiting += 1
        return job

    def release(self, job: CompileJob) -> None:
        """One holder less. What nobody waits for is not compiled; what is compiled is kept."""
        job.num_waiting -= 1
        if job.num_waiting:
            return
        del self._jobs[job.grammar]
        future = job.future
        if future.cancel() or (future.done() and future.exception() is not None):
            return
        # one that is being compiled will be ready for who asks next
        self._unused[job.grammar] = job
        self._unused_bytes += job.size_bytes
        while self._unused_bytes > self._max_cached_bytes:
            _, oldest = self._unused.popitem(last=False)
            self._unused_bytes -= oldest.size_bytes

    def close(self) -> None:
        """Ends the thread once its present work is done."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _submit(self, grammar: Grammar) -> Future[CompiledGrammar]:
        assert self._thread is not None, "the vocabulary comes first"
        assert self._backend is not None
        return self._thread.submit(_compile, self._backend, grammar)


def _compile(backend: Future[GrammarBackend], grammar: Grammar) -> CompiledGrammar:
    return backend.result().compile(grammar)  # opened by this thread before


def _begin_thread(name: str) -> None:
    name_thread(name)
    lower_thread_priority()
