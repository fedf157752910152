"""An `AsyncLLM` whose core is played: the real front end, a core without a model.

`PlayedCore` answers every request with the tokens of a script, one per step. By default it repeats
the prompt's bytes reversed. A test may hold it, step by step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from octavo.config.engine import KVEventsConfig, SchedulerConfig, StructuredOutputsConfig
from octavo.errors import EngineDead
from octavo.frontend.admission import AdmissionControl
from octavo.frontend.async_llm import AsyncLLM
from octavo.frontend.grammar_checker import GrammarChecker
from octavo.frontend.input_processor import InputProcessor
from octavo.frontend.output_processor import OutputProcessor
from octavo.messages.codec import MessageEncoder, ToCoreDecoder
from octavo.messages.engine import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    FinishReason,
    Ready,
    RequestKind,
    TokenLogprobs,
)
from octavo.structured_output.llguidance import LlguidanceBackend
from tests.fakes.byte_tokenizer import EOS, VOCAB_SIZE, ByteTokenizer
from tests.fakes.engine_config import engine_config
from tests.fakes.model_config import model_config

WINDOW = 512

#: a request to the tokens it generates; EOS ends it
Script = Callable[[EngineCoreRequest], Sequence[int]]


def reversed_prompt(request: EngineCoreRequest) -> list[int]:
    return [*[i for i in reversed(request.prompt_token_ids) if i < 256], EOS]


def saying(text: str) -> Script:
    """Always says `text`, byte by byte, then EOS."""
    return lambda request: [*text.encode(), EOS]


@dataclass
class _Running:
    request: EngineCoreRequest
    tokens: list[int]
    num_sent: int = 0
    num_prompt_logprobs: int | None = None
    error: str | None = None


@dataclass
class PlayedCore:
    """A core client that plays the core, too. `hold()` stops it; `step()` then runs one step."""

    script: Script = reversed_prompt
    added: list[EngineCoreRequest] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    calls: list[tuple[object, ...]] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)  # part of a request id -> its failure
    answers: dict[str, object] = field(default_factory=dict)  # of calls; others give True
    are_request_errors: bool = False  # the failures are the requests' own mistakes

    def __post_init__(self) -> None:
        self._running: dict[str, _Running] = {}
        self._changed = asyncio.Event()
        self._was_added = asyncio.Event()
        self._is_held = False
        self._num_steps_allowed = 0
        self._dead: str | None = None
        self._ready: list[EngineCoreOutputs] = []

    @property
    def num_running(self) -> int:
        return len(self._running)

    async def has_running(self, count: int) -> None:
        """Waits until `count` requests are in the core."""
        async with asyncio.timeout(5):
            while len(self._running) < count:
                self._was_added.clear()
                await self._was_added.wait()

    def hold(self) -> None:
        self._is_held = True

    def step(self, count: int = 1) -> None:
        self._num_steps_allowed += count
        self._changed.set()

    def release(self) -> None:
        self._is_held = False
        self._changed.set()

    def die(self, reason: str) -> None:
        self._dead = reason
        self._changed.set()

    def add_requests(self, requests: Sequence[EngineCoreRequest]) -> None:
        for request in requests:
            check_travels(request)
            self.added.append(request)
            max_tokens = request.sampling_params.max_tokens
            tokens = list(self.script(request))[:max_tokens]
            error = next((e for key, e in self.errors.items() if key in request.request_id), None)
            self._running[request.request_id] = _Running(request, tokens, error=error)
        self._changed.set()
        self._was_added.set()

    def abort_requests(self, request_ids: list[str]) -> None:
        self.aborted += request_ids
        for request_id in request_ids:
            self._running.pop(request_id, None)
        self._changed.set()

    async def receive(self) -> list[EngineCoreOutputs]:
        while True:
            if self._dead is not None:
                raise EngineDead(self._dead)
            if self._running and (not self._is_held or self._num_steps_allowed):
                self._num_steps_allowed -= self._num_steps_allowed > 0
                await asyncio.sleep(0)  # a step takes time: others may run
                return [self._step()]
            self._changed.clear()
            await self._changed.wait()

    async def call(self, method: str, *args: object) -> object:
        self.calls.append((method, *args))
        return self.answers.get(method, True)

    def start(self) -> None: ...

    async def shutdown(self, timeout_s: float) -> bool:
        return True

    def close(self) -> None: ...

    def _step(self) -> EngineCoreOutputs:
        outputs = [self._advance(running) for running in list(self._running.values())]
        for output in outputs:
            if output.finish_reason is not None:
                del self._running[output.request_id]
        return EngineCoreOutputs(outputs=outputs, timestamp_s=time.monotonic())

    def _advance(self, running: _Running) -> EngineCoreOutput:
        request = running.request
        params = request.sampling_params
        if running.error is not None:
            return EngineCoreOutput(
                request.request_id,
                [],
                FinishReason.ERROR,
                error=running.error,
                is_request_error=self.are_request_errors,
            )
        output = EngineCoreOutput(request.request_id, [])
        if params.prompt_logprobs is not None and running.num_sent == 0:
            output.prompt_logprobs = [
                None,
                *[_candidates(i, params.prompt_logprobs) for i in request.prompt_token_ids[1:]],
            ]
        if params.max_tokens == 0:
            output.finish_reason = FinishReason.LENGTH
            return output
        token = running.tokens[running.num_sent]
        running.num_sent += 1
        output.new_token_ids = [token]
        if params.logprobs is not None:
            output.logprobs = [_candidates(token, params.logprobs)]
        if token == EOS and not params.ignore_eos:
            output.finish_reason = FinishReason.STOP
        elif running.num_sent == len(running.tokens):
            output.finish_reason = FinishReason.LENGTH
        return output


def check_travels(request: EngineCoreRequest) -> None:
    """A real core is in another process: what it cannot be sent must have been refused before."""
    frame = bytes(MessageEncoder().encode(RequestKind.ADD, request))
    received = ToCoreDecoder().decode(frame)
    assert isinstance(received, EngineCoreRequest)
    assert received.request_id == request.request_id


def _candidates(token: int, num_top: int) -> TokenLogprobs:
    """The token (rank 2), then the ids 0, 1, ... as the most likely ones."""
    top = [i for i in range(num_top + 1) if i != token][:num_top]
    ranks = [1, *range(3, num_top + 2)][:num_top]
    return TokenLogprobs(
        [token, *top],
        [float("-inf") if token == 0 else -1.5, *[-0.25 - 2 * i for i in range(num_top)]],
        [2, *ranks],
    )


def make_llm(
    core: PlayedCore,
    *,
    start: bool = True,
    scheduler: SchedulerConfig | None = None,
    stall_limit_s: float = 30.0,
    kv_events: KVEventsConfig | None = None,
    structured_outputs: StructuredOutputsConfig | None = None,
    **model: Any,
) -> AsyncLLM:
    """An engine on `core`; needs a running event loop if it is to be started."""
    names = {"served_model_names": ["small", "org/small-2"], "max_model_len": WINDOW}
    config = msgspec.structs.replace(
        engine_config(),
        model=model_config(**{**names, **model}),
        structured_outputs=structured_outputs or StructuredOutputsConfig(),
    )
    tokenizer: Any = ByteTokenizer()
    llm = AsyncLLM(
        config=config,
        tokenizer=tokenizer,
        core_client=core,
        input_processor=InputProcessor(config.model, tokenizer),
        output_processor=OutputProcessor(tokenizer),
        admission=AdmissionControl(scheduler or config.scheduler),
        grammars=GrammarChecker(
            config.structured_outputs,
            tokenizer,
            vocab_size=VOCAB_SIZE,
            eos_token_ids=[EOS],
            open_backend=LlguidanceBackend,
        ),
        stall_limit_s=stall_limit_s,
    )
    if start:
        llm.start(msgspec.structs.replace(READY, kv_events=kv_events))
    return llm


READY = Ready(
    engine_index=0,
    max_model_len=WINDOW,
    num_blocks=1025,
    block_size=16,
    kv_cache_size_tokens=16384,
    max_num_batched_tokens=512,
    max_num_seqs=32,
    dtype="float32",
)
