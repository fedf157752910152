"""The whole engine in this process, driven step by step: a test decides between any two steps which
requests come and which leave.

What a server does in two processes, without clocks and sockets: the same input and output
processing, the same core, a real model.
"""

from __future__ import annotations

import itertools
from typing import Any, Self

import msgspec

from octavo.config.args import EngineArgs
from octavo.config.engine import EngineConfig
from octavo.core.engine_core import EngineCore
from octavo.envs import Env
from octavo.frontend.input_processor import InputProcessor
from octavo.frontend.output_processor import OutputProcessor
from octavo.frontend.prompt import TokensPrompt
from octavo.launch.engine_config import find_engine_config
from octavo.launch.executors import make_executor
from octavo.messages.engine import SchedulerStats
from octavo.metrics.stats import FinishedRequestStats
from octavo.outputs import RequestOutput
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.tokenizer.tokenizer import Tokenizer, load_tokenizer


class Sink:
    """What one request has said."""

    def __init__(self) -> None:
        self.outputs: list[RequestOutput] = []
        self.error: BaseException | None = None

    def put(self, output: RequestOutput) -> None:
        self.outputs.append(output)

    def fail(self, error: BaseException) -> None:
        self.error = error

    @property
    def is_finished(self) -> bool:
        return self.error is not None or bool(self.outputs and self.outputs[-1].finished)


class Totals:
    """Sums of what the statistics of all steps said."""

    def __init__(self) -> None:
        self.num_steps = 0
        self.num_preemptions = 0
        self.num_prefix_queries = 0
        self.num_prefix_hits = 0
        self.num_scheduled_tokens = 0
        self.num_prompt_tokens = 0
        self.num_cached_tokens = 0
        self.num_generation_tokens = 0
        self.finished: list[FinishedRequestStats] = []
        self.last: SchedulerStats | None = None


class SteppingEngine:
    """A loaded engine without a loop of its own.

    Args:
        model: as for `LLM`.
        engine_args: options with their names on the command line.
    """

    def __init__(self, model: str | None = None, **engine_args: Any) -> None:
        self.config: EngineConfig = find_engine_config(
            EngineArgs(model=model, **engine_args), Env()
        )
        self.tokenizer: Tokenizer = load_tokenizer(self.config.model.tokenizer_path)
        self.core = EngineCore(self.config, make_executor(self.config))
        ready = self.core.ready
        self._input = InputProcessor(self.config.model, self.tokenizer)
        self._input.set_limits(ready.max_model_len, ready.kv_cache_size_tokens)
        self._output = OutputProcessor(self.tokenizer)
        self._ids = itertools.count()
        self.totals = Totals()

    def add(
        self, prompt: str | list[int], params: SamplingParams, *, priority: int = 0
    ) -> tuple[str, Sink]:
        """A new request: its id, and where its outputs come."""
        if isinstance(prompt, str):
            prompt = self.tokenizer.encode(prompt)
        request = self._input.process(
            TokensPrompt(prompt), params, f"r{next(self._ids)}", priority=priority
        )
        sink = Sink()
        for child in self._output.add_request(request, None, sink):
            self.core.add_request(child)
        return request.request_id, sink

    def abort(self, request_id: str) -> None:
        """Its client leaves. Nothing happens if it has ended."""
        self.core.abort_requests(self._output.abort_request(request_id, is_consumer_there=False))

    def step(self) -> bool:
        """One step; False if there was nothing to do."""
        if not self.core.has_work:
            return False
        said = self.core.step()
        if said is not None:
            self.core.abort_requests(self._output.process(said))
            stats = said.scheduler_stats
            assert stats is not None
            totals = self.totals
            totals.num_steps += 1
            totals.num_preemptions += stats.num_preemptions
            totals.num_prefix_queries += stats.prefix_cache.queries
            totals.num_prefix_hits += stats.prefix_cache.hits
            totals.num_scheduled_tokens += stats.num_scheduled_tokens
            totals.last = stats
        iteration, totals = self._output.take_stats(), self.totals
        totals.num_prompt_tokens += iteration.num_prompt_tokens
        totals.num_cached_tokens += iteration.num_cached_tokens
        totals.num_generation_tokens += iteration.num_generation_tokens
        totals.finished += iteration.finished
        return True

    def finish(self, max_steps: int = 100_000) -> None:
        """Steps until nothing is left to do."""
        for _ in range(max_steps):
            if not self.step():
                return
        raise AssertionError(f"there is still work after {max_steps} steps")

    def run(
        self, prompt: str | list[int], params: SamplingParams, *, priority: int = 0
    ) -> RequestOutput:
        """The last output of one request, with nobody else there."""
        _, sink = self.add(prompt, final(params), priority=priority)
        self.finish()
        assert sink.error is None, sink.error
        return sink.outputs[-1]

    @property
    def num_unfinished(self) -> int:
        return self._output.num_unfinished_requests

    def forget_prefixes(self) -> None:
        """Empties the prefix cache; fails while anybody holds a block."""
        assert self.core.reset_prefix_cache()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.core.shutdown()


def final(params: SamplingParams) -> SamplingParams:
    """The same, one output at the end."""
    return msgspec.structs.replace(params, output_kind=RequestOutputKind.FINAL_ONLY)
