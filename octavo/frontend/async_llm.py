"""`AsyncLLM`: the engine as the HTTP side sees it.

Neighbours: `octavo/api` (caller), `octavo/frontend/input_processor.py`,
`octavo/frontend/core_client.py`, `octavo/frontend/output_processor.py`,
`octavo/frontend/request_stream.py` (what callers read).
Runs in: API process, on the event loop's thread only. Owns: the output task.
Knows nothing of: HTTP, sockets, processes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import msgspec

from octavo.config.engine import EngineConfig, KVEventsConfig, ModelConfig
from octavo.errors import (
    EngineDead,
    GenerationFailed,
    InvalidParameter,
    NotReady,
    UnsupportedFeature,
)
from octavo.frontend.admission import AdmissionControl
from octavo.frontend.beam_search import begin_search, step_params
from octavo.frontend.beam_search_stream import run_beam_search
from octavo.frontend.core_client import AsyncCoreClient
from octavo.frontend.grammar_gate import Checker, GrammarGate
from octavo.frontend.input_processor import InputProcessor
from octavo.frontend.output_processor import OutputProcessor
from octavo.frontend.prompt import Prompt, TextPrompt, TokensPrompt
from octavo.frontend.request_stream import RequestStream
from octavo.messages.engine import EngineCoreOutputs, EngineCoreRequest, Ready
from octavo.messages.grammar import Grammar, Vocabulary
from octavo.messages.profile import Profile
from octavo.metrics.stats import StatsRecorder
from octavo.outputs import RequestOutput
from octavo.sampling_params import BeamSearchParams, SamplingParams
from octavo.transport.process_name import name_thread

if TYPE_CHECKING:
    from octavo.tokenizer.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: a core with work that says nothing for this long counts as stalled
STALL_LIMIT_S = 30.0
#: texts longer than this are tokenised in a thread: the event loop must not stop for milliseconds
MAX_INLINE_CHARS = 4096


class AsyncLLM:
    """Generation for many concurrent callers.

    Made before the core is ready, so that the HTTP side can be built meanwhile; `start` connects
    them.

    Args:
        config: the engine's configuration.
        tokenizer: None with `--skip-tokenizer-init`.
        core_client: the way to the core.
        grammars: checks structured output; None: there is none.
        recorders: take the statistics of each step.
        stall_limit_s: see `is_stalled`.
        clock: seconds of `time.monotonic()`.
    """

    def __init__(
        self,
        *,
        config: EngineConfig,
        tokenizer: Tokenizer | None,
        core_client: AsyncCoreClient,
        input_processor: InputProcessor,
        output_processor: OutputProcessor,
        admission: AdmissionControl,
        grammars: Checker | None = None,
        recorders: Sequence[StatsRecorder] = (),
        stall_limit_s: float = STALL_LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self._tokenizer = tokenizer
        self._client = core_client
        self._input = input_processor
        self._output = output_processor
        self._admission = admission
        self._grammars = None if grammars is None else GrammarGate(grammars, self._send_vocabulary)
        self._recorders = recorders
        self._stall_limit_s = stall_limit_s
        self._clock = clock
        self._output_task: asyncio.Task[None] | None = None
        self._encoders: dict[str, ThreadPoolExecutor] = {}
        self._dead_reason: str | None = None
        self._dead: asyncio.Future[str] | None = None
        self._is_draining = False
        self._is_closed = False
        self._idle: asyncio.Future[None] | None = None  # set when a drain is complete
        self._last_heard_s = 0.0
        self._kv_event_sources: dict[int, KVEventsConfig] = {}

    # facts

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer.

        Raises:
            InvalidParameter: there is none (`--skip-tokenizer-init`).
        """
        if self._tokenizer is None:
            raise InvalidParameter(
                "The server runs without a tokenizer (--skip-tokenizer-init): send token ids."
            )
        return self._tokenizer

    @property
    def model_config(self) -> ModelConfig:
        """The model served."""
        return self.config.model

    @property
    def max_model_len(self) -> int:
        """The window in tokens; final once the core is ready."""
        return self._input.max_model_len

    @property
    def is_running(self) -> bool:
        """True from the core's readiness to its end: completions can be answered."""
        return self._output_task is not None and self._dead_reason is None

    @property
    def is_draining(self) -> bool:
        """True once new requests are refused because the server is about to end."""
        return self._is_draining

    @property
    def dead_reason(self) -> str | None:
        """One sentence with the cause once the core is dead."""
        return self._dead_reason

    @property
    def num_unfinished_requests(self) -> int:
        """Requests in the core, each of a request's `n` outputs counted."""
        return self._output.num_unfinished_requests

    @property
    def kv_event_sources(self) -> Mapping[int, KVEventsConfig]:
        """Number of an engine -> where it publishes events of its prefix cache, if it does."""
        return self._kv_event_sources

    def is_stalled(self) -> bool:
        """True if the core has work and has said nothing for `stall_limit_s`."""
        return (
            self._output.num_unfinished_requests > 0
            and self._clock() - self._last_heard_s > self._stall_limit_s
        )

    # life

    def start(self, ready: Ready) -> None:
        """Takes what the ready core said and starts the output task; needs a running event loop."""
        assert self._output_task is None, "AsyncLLM was started already"
        loop = asyncio.get_running_loop()
        self._input.set_limits(ready.max_model_len, ready.kv_cache_size_tokens)
        if ready.kv_events is not None:
            self._kv_event_sources[ready.engine_index] = ready.kv_events
        self._dead = loop.create_future()
        self._last_heard_s = self._clock()
        self._client.start()
        self._output_task = loop.create_task(self._read_outputs(), name="octavo-outputs")

    async def drain(self, timeout_s: float) -> bool:
        """Refuses new requests (NotReady) and waits until the running ones have ended.

        Returns:
            False if some had not ended after `timeout_s`: those have been aborted and their callers
            got GenerationFailed.
        """
        self._is_draining = True
        if self._output.num_unfinished_requests:
            self._idle = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._idle], timeout=timeout_s)
            self._idle = None
        if not self._output.num_unfinished_requests:
            return True
        ids = self._output.unfinished_ids()
        self._output.fail_all(
            lambda: GenerationFailed("The server is shutting down; the request was ended.")
        )
        if self._dead_reason is None:
            self._client.abort_requests(ids)
        return False

    async def shutdown(self, timeout_s: float = 0.0) -> None:
        """Asks the core to end, waits for that at most `timeout_s`, and closes the way to it.

        Requests that have not ended get EngineDead. Idempotent.
        """
        self._end("The server has shut down.")
        if self._output_task is not None:
            self._output_task.cancel()
            await asyncio.wait([self._output_task])
        if not self._is_closed:
            self._is_closed = True
            await self._client.shutdown(timeout_s)
            self._client.close()
        for pool in self._encoders.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._encoders.clear()
        if self._grammars is not None:
            self._grammars.close()

    async def wait_dead(self) -> str:
        """Returns the reason once the core is dead."""
        assert self._dead is not None, "AsyncLLM is not started"
        return await asyncio.shield(self._dead)

    # requests

    async def add_request(
        self,
        prompt: Prompt,
        params: SamplingParams,
        request_id: str,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> RequestStream:
        """Checks everything and queues the request; what it generates is read from the stream.

        Raises:
            RequestError: the request cannot be served as sent (InvalidParameter, PromptTooLong).
            Overloaded: a queue limit is reached.
            NotReady: the engine is starting or draining.
            EngineDead: the core is gone.
        """
        self._check_open()
        self._admission.check_requests(self._output.num_unfinished_requests, params.n)
        grammar = await self._grammar(params)
        if isinstance(prompt, TextPrompt) and len(prompt.text) > MAX_INLINE_CHARS:
            self._input.check_text(prompt.text)  # refuse before the costly part
            self._input.complete_params(params)
            prompt = await self._encode_in_thread("octavo-prompts", prompt)
            self._check_open()
            self._admission.check_requests(self._output.num_unfinished_requests, params.n)
        request = self._input.process(
            prompt,
            params,
            request_id,
            priority=priority,
            cache_salt=cache_salt,
            grammar=grammar,
        )
        self._admission.check_tokens(
            self._output.num_prefill_tokens, len(request.prompt_token_ids), params.n
        )
        stream = RequestStream(
            request_id, request.prompt_token_ids, params.output_kind, self._on_leave
        )
        if self._output.num_unfinished_requests == 0:
            self._last_heard_s = self._clock()  # an idle core says nothing: not a stall
        children = self._output.add_request(request, prompt.text, stream)
        try:
            self._client.add_requests(children)
        except BaseException:
            self._on_leave(request_id)
            raise
        return stream

    async def add_beam_search(
        self,
        prompt: Prompt,
        params: BeamSearchParams,
        request_id: str,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> RequestStream:
        """Checks everything and starts the search; its stream gives one output, at the end.

        Raises:
            RequestError, Overloaded, NotReady, EngineDead: as `add_request`.
        """
        self._check_open()
        self._admission.check_requests(self._output.num_unfinished_requests, params.beam_width)
        if isinstance(prompt, TextPrompt):
            self._input.check_text(prompt.text)
            token_ids = await self.tokenize(
                prompt.text, add_special_tokens=prompt.add_special_tokens
            )
            prompt = TokensPrompt(token_ids, prompt.text)
        search = begin_search(self._input, prompt, params, request_id)
        one = step_params(params)

        async def add(beam: TokensPrompt, beam_id: str) -> RequestStream:
            return await self.add_request(
                beam, one, beam_id, priority=priority, cache_salt=cache_salt
            )

        return run_beam_search(
            search,
            add,
            request_id=request_id,
            prompt=prompt.text,
            tokenizer=self._tokenizer,
        )

    async def generate(
        self,
        prompt: Prompt,
        params: SamplingParams,
        request_id: str,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """`add_request` and its outputs as one async generator; errors come with the first
        output. Closing or cancelling it aborts the request."""
        stream = await self.add_request(
            prompt, params, request_id, priority=priority, cache_salt=cache_salt
        )
        async with stream:
            async for output in stream:
                yield output

    async def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text.

        Raises:
            InvalidParameter: there is no tokenizer, or the text is not valid Unicode.
        """
        prompt = TextPrompt(text, add_special_tokens)
        self._input.check_any_text(text)
        if len(text) <= MAX_INLINE_CHARS:
            return list(self._input.encode(prompt).token_ids)
        # not with the prompts: this text may be of any length, and they must not wait for it
        return list((await self._encode_in_thread("octavo-tokenize", prompt)).token_ids)

    async def render(
        self, prompt: Prompt, params: SamplingParams, request_id: str
    ) -> EngineCoreRequest:
        """What `add_request` would send to the core; nothing is queued.

        Raises:
            RequestError, NotReady, EngineDead: as `add_request`.
        """
        self._check_alive()
        grammar = await self._grammar(params)
        if isinstance(prompt, TextPrompt):
            self._input.check_text(prompt.text)
            token_ids = await self.tokenize(
                prompt.text, add_special_tokens=prompt.add_special_tokens
            )
            prompt = TokensPrompt(token_ids)
        return self._input.process(prompt, params, request_id, grammar=grammar)

    async def abort(self, request_id: str) -> None:
        """Ends a request: its caller gets what there is, with finish reason `abort`."""
        self._abort(request_id, is_consumer_there=True)

    async def reset_prefix_cache(self, *, preempt_running: bool = False) -> bool:
        """Forgets cached prefixes; False while blocks are in use.

        Args:
            preempt_running: take running requests their blocks; they compute everything again.

        Raises:
            EngineDead: the core is gone.
        """
        self._check_alive()
        return bool(await self._client.call("reset_prefix_cache", preempt_running))

    async def start_profile(self) -> None:
        """Clocks every operation of the steps to come, from zero if a profile is being taken.

        Raises:
            EngineDead: the core is gone.
            EngineError: the backend has no clocks.
        """
        self._check_alive()
        await self._client.call("start_profile")

    async def stop_profile(self) -> Profile:
        """What they took. Steps wait a second meanwhile: the machine's limits are measured.

        Raises:
            EngineDead: the core is gone.
            EngineError: no profile is being taken.
        """
        self._check_alive()
        return msgspec.convert(await self._client.call("stop_profile"), Profile)

    # inside

    async def _grammar(self, params: SamplingParams) -> Grammar | None:
        if params.structured_outputs is None:
            return None
        if self._grammars is None:
            raise UnsupportedFeature("This server was made without structured output.")
        grammar = await self._grammars.pass_through(params.structured_outputs)
        self._check_open()
        self._admission.check_requests(self._output.num_unfinished_requests, params.n)
        return grammar

    async def _send_vocabulary(self, vocabulary: Vocabulary) -> object:
        return await self._client.call("set_vocabulary", vocabulary)

    def _check_alive(self) -> None:
        if self._dead_reason is not None:
            raise EngineDead(self._dead_reason)
        if self._output_task is None:
            raise NotReady("The engine is starting; please try again in a moment.")

    def _check_open(self) -> None:
        self._check_alive()
        if self._is_draining:
            raise NotReady("The server is shutting down and takes no new requests.")

    async def _encode_in_thread(self, thread: str, prompt: TextPrompt) -> TokensPrompt:
        """`thread` names the queue; each has one thread."""
        pool = self._encoders.get(thread)
        if pool is None:
            pool = self._encoders[thread] = ThreadPoolExecutor(
                1, thread_name_prefix=thread, initializer=name_thread, initargs=(thread,)
            )
        return await asyncio.get_running_loop().run_in_executor(pool, self._input.encode, prompt)

    def _on_leave(self, request_id: str) -> None:
        self._abort(request_id, is_consumer_there=False)

    def _abort(self, request_id: str, *, is_consumer_there: bool) -> None:
        ids = self._output.abort_request(request_id, is_consumer_there=is_consumer_there)
        if ids and self._dead_reason is None:
            logger.info("Aborted request %s.", request_id)
            self._client.abort_requests(ids)
            self._after_change(None)

    async def _read_outputs(self) -> None:
        """The output task: everything the core says passes here."""
        try:
            while True:
                for step in await self._client.receive():
                    self._take(step)
        except EngineDead as error:
            self._end(error.message)
        except Exception as error:
            logger.exception("The output task failed.")
            self._end(f"The front end failed: {type(error).__name__}: {error}")

    def _take(self, step: EngineCoreOutputs) -> None:
        self._last_heard_s = self._clock()
        aborts = self._output.process(step)
        if aborts:
            self._client.abort_requests(aborts)
        self._after_change(step)

    def _after_change(self, step: EngineCoreOutputs | None) -> None:
        iteration = self._output.take_stats()
        for recorder in self._recorders:
            recorder.record(None if step is None else step.scheduler_stats, iteration)
        if not self._output.num_unfinished_requests:
            _resolve(self._idle, None)

    def _end(self, reason: str) -> None:
        if self._dead_reason is not None:
            return
        self._dead_reason = reason
        self._output.fail_all(lambda: EngineDead(reason))
        _resolve(self._dead, reason)
        _resolve(self._idle, None)


def _resolve(future: asyncio.Future[T] | None, value: T) -> None:
    if future is not None and not future.done():
        future.set_result(value)
