"""The engine of offline use: checks, core and output processing in one thread, no sockets.

Neighbours: `octavo/llm.py` (user), `octavo/launch.py` (makes it), `octavo/frontend/core_client.py`.
Runs in: the user's process. Owns: the core. Knows nothing of: progress bars, chat templates.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from types import FrameType
from typing import TYPE_CHECKING, Self

import msgspec

from octavo.config.engine import EngineConfig
from octavo.errors import EngineDead, UnsupportedFeature
from octavo.frontend.beam_search import begin_search, candidates_of, step_params
from octavo.frontend.core_client import InprocClient
from octavo.frontend.grammar_checker import GrammarChecker
from octavo.frontend.input_processor import InputProcessor
from octavo.frontend.output_processor import OutputProcessor
from octavo.frontend.prompt import Prompt
from octavo.messages.engine import Ready
from octavo.messages.grammar import Grammar
from octavo.messages.profile import Profile
from octavo.outputs import RequestOutput
from octavo.sampling_params import BeamSearchParams, RequestOutputKind, SamplingParams

if TYPE_CHECKING:
    from octavo.tokenizer.tokenizer import Tokenizer

#: pause when all requests wait for their grammars
WAIT_S = 0.001


class OfflineEngine:
    """Runs batches of requests to their end.

    Args:
        config: the engine's configuration.
        tokenizer: None with `skip_tokenizer_init`.
        client: the core; closed with this object.
        ready: what the core said of itself.
        grammars: checks structured output; None: there is none.
    """

    def __init__(
        self,
        config: EngineConfig,
        tokenizer: Tokenizer | None,
        client: InprocClient,
        ready: Ready,
        *,
        grammars: GrammarChecker | None = None,
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self._client = client
        self._input = InputProcessor(config.model, tokenizer)
        self._input.set_limits(ready.max_model_len, ready.kv_cache_size_tokens)
        self._output = OutputProcessor(tokenizer)
        self._ids = count()
        self._is_closed = False
        self._grammars = grammars
        self._knows_vocabulary = False

    @property
    def max_model_len(self) -> int:
        """The window in tokens."""
        return self._input.max_model_len

    def run(
        self,
        prompts: Sequence[Prompt],
        params: Sequence[SamplingParams],
        *,
        priorities: Sequence[int] | None = None,
        on_finished: Callable[[RequestOutput], None] = lambda output: None,
    ) -> list[RequestOutput]:
        """Generates for all prompts, batched; the outputs in order of the prompts.

        Args:
            prompts: all are checked before any is computed.
            params: one for each prompt.
            priorities: one for each prompt; None: all equal.
            on_finished: called with each whole output as soon as it is there.

        Raises:
            RequestError: a prompt or its parameters cannot be served; nothing was computed.
            GenerationFailed: a request failed; the others are given up.
            EngineDead: the engine is closed or cannot go on.
        """
        if self._is_closed:
            raise EngineDead("This LLM is closed; make a new one.")
        requests = [
            (
                self._input.process(
                    prompt,
                    msgspec.structs.replace(one, output_kind=RequestOutputKind.FINAL_ONLY),
                    str(next(self._ids)),
                    priority=0 if priorities is None else priorities[index],
                    grammar=self._grammar(one),
                ),
                prompt,
            )
            for index, (prompt, one) in enumerate(zip(prompts, params, strict=True))
        ]
        sink = _Sink(on_finished)
        try:
            with _InterruptBetweenSteps() as interrupt:
                for request, prompt in requests:
                    self._client.add_requests(self._output.add_request(request, prompt.text, sink))
                while self._output.num_unfinished_requests:
                    self._step()
                    if sink.error is not None:
                        raise sink.error
                    interrupt.check()
        except BaseException:
            for request, _ in requests:
                aborts = self._output.abort_request(request.request_id, is_consumer_there=False)
                if aborts and not self._is_closed:
                    self._client.abort_requests(aborts)
            raise
        return [sink.outputs[request.request_id] for request, _ in requests]

    def _grammar(self, params: SamplingParams) -> Grammar | None:
        if params.structured_outputs is None:
            return None
        if self._grammars is None:
            raise UnsupportedFeature("This engine was made without structured output.")
        grammar = self._grammars.check(params.structured_outputs)
        if not self._knows_vocabulary:
            self._client.set_vocabulary(self._grammars.vocabulary())
            self._knows_vocabulary = True
        return grammar

    def beam_search(
        self, prompts: Sequence[Prompt], params: BeamSearchParams
    ) -> list[RequestOutput]:
        """The best outputs of each prompt; the beams of all prompts are batched.

        Raises:
            RequestError, GenerationFailed, EngineDead: as `run`.
        """
        names = [f"beam-search-{next(self._ids)}" for _ in prompts]
        searches = [
            begin_search(self._input, prompt, params, name)
            for prompt, name in zip(prompts, names, strict=True)
        ]
        one = step_params(params)
        while open_searches := [search for search in searches if not search.is_done]:
            beams = [search.prompts() for search in open_searches]
            flat = [beam for of_one in beams for beam in of_one]
            outputs = iter(self.run(flat, [one] * len(flat)))
            for search, of_one in zip(open_searches, beams, strict=True):
                search.advance([candidates_of(next(outputs)) for _ in of_one])
        return [
            RequestOutput(
                name, prompt.text, search.prompt_token_ids, search.best(self.tokenizer), True
            )
            for name, prompt, search in zip(names, prompts, searches, strict=True)
        ]

    def reset_prefix_cache(self, *, preempt_running: bool = False) -> bool:
        """Forgets cached prefixes; False while blocks are in use."""
        return self._client.reset_prefix_cache(preempt_running=preempt_running)

    def start_profile(self) -> None:
        """Clocks the operations of the runs to come."""
        self._client.start_profile()

    def stop_profile(self) -> Profile:
        """What they took."""
        return self._client.stop_profile()

    def close(self) -> None:
        """Frees the model. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._client.close()

    def _step(self) -> None:
        try:
            step = self._client.step()
        except Exception as error:
            self.close()
            raise EngineDead(f"The engine cannot go on: {type(error).__name__}: {error}") from error
        if step is None:
            time.sleep(WAIT_S)
        else:
            aborts = self._output.process(step)
            if aborts:
                self._client.abort_requests(aborts)
        self._output.take_stats()  # nobody reads them offline


class _Sink:
    """Takes the outputs of all requests of a batch."""

    def __init__(self, on_finished: Callable[[RequestOutput], None]) -> None:
        self._on_finished = on_finished
        self.outputs: dict[str, RequestOutput] = {}
        self.error: BaseException | None = None

    def put(self, output: RequestOutput) -> None:
        self.outputs[output.request_id] = output
        self._on_finished(output)

    def fail(self, error: BaseException) -> None:
        self.error = error


class _InterruptBetweenSteps:
    """Holds Ctrl-C back until `check`: an interrupt in the middle of a step would leave the core in
    a state that no later request could use."""

    def __init__(self) -> None:
        self._is_interrupted = False
        self._previous: signal.Handlers | Callable[[int, FrameType | None], object] | int | None
        self._previous = None

    def __enter__(self) -> Self:
        # only Python's own handler is replaced; a program that has its own knows what it wants
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            self._previous = signal.signal(signal.SIGINT, self._remember)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def check(self) -> None:
        """Raises KeyboardInterrupt if there was one."""
        if self._is_interrupted:
            raise KeyboardInterrupt

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._is_interrupted = True
