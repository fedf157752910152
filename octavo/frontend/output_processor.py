"""`EngineCoreOutputs` to `RequestOutput`: text, stop strings, logprobs, n outputs, statistics.

The hot path of the API process: once per step for every running request.

Neighbours: `octavo/frontend/async_llm.py` and `octavo/llm.py` (callers),
`octavo/frontend/request_state.py`, `octavo/frontend/request_stream.py` (a sink).
Runs in: API process, or the user's process offline. Owns: the state of every unfinished request on
this side of the core. Knows nothing of: sockets, event loops, HTTP.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from octavo.errors import GenerationFailed, InvalidParameter, OctavoError
from octavo.frontend import parallel_sampling
from octavo.frontend.detokenizer import DecodeStream, Detokenizer
from octavo.frontend.logprobs import LogprobsDecoder
from octavo.frontend.request_state import OutputSink, OutputState, RequestState
from octavo.messages.engine import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    FinishReason,
)
from octavo.metrics.stats import IterationStats
from octavo.outputs import FlatLogprobs, LogprobsList
from octavo.sampling_params import SamplingParams

logger = logging.getLogger(__name__)


class OutputTokenizer(Protocol):
    """What decoding outputs needs of a tokenizer."""

    def decode_stream(
        self, prompt_ids: Sequence[int], skip_special_tokens: bool = True
    ) -> DecodeStream: ...

    def token_bytes(self, token_id: int) -> bytes: ...


class OutputProcessor:
    """Turns what the core says into what callers see.

    Args:
        tokenizer: None if there is none (`--skip-tokenizer-init`): outputs have no text.
        stream_interval: tokens per delta, after the first one; requests may ask for more.
        clock: seconds of `time.monotonic()`.
    """

    def __init__(
        self,
        tokenizer: OutputTokenizer | None,
        *,
        stream_interval: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokenizer = tokenizer
        self._logprobs = LogprobsDecoder(None if tokenizer is None else tokenizer.token_bytes)
        self._stream_interval = stream_interval
        self._clock = clock
        self._requests: dict[str, RequestState] = {}
        self._outputs: dict[str, OutputState] = {}  # by the id the core knows
        self._num_prefill_tokens = 0
        self._iteration = IterationStats()

    @property
    def num_unfinished_requests(self) -> int:
        """Requests in the core; each of a request's `n` counts."""
        return len(self._outputs)

    @property
    def num_prefill_tokens(self) -> int:
        """Prompt tokens of requests in the core that have no token yet."""
        return self._num_prefill_tokens

    def add_request(
        self, request: EngineCoreRequest, prompt: str | None, sink: OutputSink
    ) -> list[EngineCoreRequest]:
        """Registers a request; returns what the core must be sent: one request per output.

        Raises:
            InvalidParameter: the request id is in use.
        """
        params = request.sampling_params
        children = parallel_sampling.split(request, params.n)
        if request.request_id in self._requests or any(
            child.request_id in self._outputs for child in children
        ):
            raise InvalidParameter(
                f"request_id {request.request_id!r} belongs to a request that has not ended; "
                "use another one.",
                param="request_id",
            )
        state = RequestState(request, prompt, sink, self._clock())
        self._requests[request.request_id] = state
        for index, child in enumerate(children):
            self._outputs[child.request_id] = OutputState(
                state,
                index,
                child.request_id,
                self._make_detokenizer(request),
                logprobs=_logprobs_list(params),
            )
            state.child_ids.append(child.request_id)
        self._num_prefill_tokens += len(children) * len(request.prompt_token_ids)
        return children

    def abort_request(self, request_id: str, *, is_consumer_there: bool) -> list[str]:
        """Ends a request; returns the ids to abort in the core (none if it has ended already).

        If its consumer is still there, the sink gets the rest of what there is, with finish reason
        `abort`.
        """
        request = self._requests.get(request_id)
        if request is None:
            return []
        now = self._clock()
        aborts = [child_id for child_id in request.child_ids if child_id in self._outputs]
        for child_id in aborts:
            output = self._outputs[child_id]
            output.finish(FinishReason.ABORT, None)
            if is_consumer_there:
                output.emit()
            self._forget(output, now)
        return aborts

    def unfinished_ids(self) -> list[str]:
        """Ids, as the core knows them, of all requests that have not ended."""
        return list(self._outputs)

    def fail_all(self, make_error: Callable[[], BaseException]) -> None:
        """Ends every request with an error of its own."""
        requests = list(self._requests.values())
        self._requests.clear()
        self._outputs.clear()
        self._num_prefill_tokens = 0
        for request in requests:
            request.sink.fail(make_error())

    def process(self, step: EngineCoreOutputs) -> list[str]:
        """Takes one step's outputs and feeds the sinks.

        Returns:
            Ids that the core must abort: their text ended by a stop string, or they belong to a
            request of which another output failed.
        """
        aborts: list[str] = []
        now = self._clock()
        outputs = self._outputs
        for core_output in step.outputs:
            output = outputs.get(core_output.request_id)
            if output is None:  # aborted while this was on its way
                continue
            try:
                self._update(output, core_output, step.timestamp_s, now, aborts)
            except Exception as error:
                logger.exception("Request %s: its output failed.", output.request.request_id)
                message = f"The output could not be made: {type(error).__name__}: {error}"
                self._fail_request(output, GenerationFailed(message), now, aborts)
        return aborts

    def take_stats(self) -> IterationStats:
        """What happened since the last call."""
        taken, self._iteration = self._iteration, IterationStats()
        return taken

    def _make_detokenizer(self, request: EngineCoreRequest) -> Detokenizer | None:
        params = request.sampling_params
        if self._tokenizer is None or not params.detokenize:
            return None
        return Detokenizer(
            self._tokenizer.decode_stream(
                request.prompt_token_ids, skip_special_tokens=params.skip_special_tokens
            ),
            params.stop_strings,
            include_stop_str=params.include_stop_str_in_output,
            min_tokens=params.min_tokens,
        )

    def _update(
        self,
        output: OutputState,
        new: EngineCoreOutput,
        step_s: float,
        now_s: float,
        aborts: list[str],
    ) -> None:
        if new.finish_reason is FinishReason.ERROR:
            message = new.error or "The engine could not generate."
            error = InvalidParameter(message) if new.is_request_error else GenerationFailed(message)
            self._fail_request(output, error, now_s, aborts)
            return
        if output.metrics.first_token_s == 0.0:
            self._start(output, new)
        if new.events is not None:
            output.metrics.queued_s = new.events.queued_s
            output.metrics.scheduled_s = new.events.scheduled_s
            output.num_preemptions = new.events.num_preemptions

        reason, stop_reason = new.finish_reason, new.stop_reason
        token_ids, logprobs = new.new_token_ids, new.logprobs
        final_stop_string: str | None = None
        if token_ids:
            detokenizer = output.detokenizer
            if detokenizer is not None:
                num_tokens = detokenizer.feed(
                    token_ids, last_is_stop_token=reason is FinishReason.STOP
                )
                final_stop_string = detokenizer.stop_string
                if num_tokens < len(token_ids):
                    token_ids = token_ids[:num_tokens]
                    logprobs = None if logprobs is None else logprobs[:num_tokens]
            output.token_ids += token_ids
            if logprobs is not None and output.logprobs is not None:
                assert output.cumulative_logprob is not None
                output.logprobs.extend(self._logprobs.decode_all(logprobs))
                output.cumulative_logprob += sum(position.logprobs[0] for position in logprobs)
            self._count(output, len(token_ids), step_s, now_s)
        elif reason is FinishReason.LENGTH and output.request.max_tokens == 0:
            self._count_prompt(output)

        if final_stop_string is not None:
            if reason is None:
                aborts.append(output.child_id)
            output.finish(FinishReason.STOP, final_stop_string)
        elif reason is not None:
            output.finish(reason, stop_reason)
        elif not token_ids:
            return
        output.emit(max(self._stream_interval, output.request.stream_interval))
        if output.finish_reason is not None:
            self._forget(output, now_s)

    def _start(self, output: OutputState, new: EngineCoreOutput) -> None:
        """What comes with a request's prefill."""
        request = output.request
        if output.index == 0:
            request.num_cached_tokens = new.num_cached_tokens
            if new.prompt_logprobs is not None:
                if request.prompt_logprobs is None:
                    request.prompt_logprobs = []
                request.prompt_logprobs += self._logprobs.decode_prompt(new.prompt_logprobs)

    def _count(self, output: OutputState, num_tokens: int, step_s: float, now_s: float) -> None:
        times, iteration = output.metrics, self._iteration
        if times.num_generation_tokens == 0:
            request = output.request
            times.first_token_s = step_s
            self._num_prefill_tokens -= len(request.prompt_token_ids)
            iteration.time_to_first_token_s.append(now_s - request.arrival_s)
            self._count_prompt(output)
        else:
            iteration.inter_token_latency_s.append(step_s - times.last_token_s)
        times.last_token_s = step_s
        times.num_generation_tokens += num_tokens
        iteration.num_generation_tokens += num_tokens

    def _count_prompt(self, output: OutputState) -> None:
        """The prompt has been computed; it counts once for all outputs."""
        if output.index == 0:
            request, iteration = output.request, self._iteration
            iteration.num_prompt_tokens += len(request.prompt_token_ids)
            iteration.num_cached_tokens += request.num_cached_tokens or 0

    def _fail_request(
        self, failed: OutputState, error: OctavoError, now_s: float, aborts: list[str]
    ) -> None:
        """One output failed: the caller's whole request ends, the core forgets what is left."""
        request = failed.request
        for child_id in request.child_ids:
            output = self._outputs.get(child_id)
            if output is not None:
                if output.finish_reason is None:
                    output.finish(FinishReason.ERROR, None)
                self._forget(output, now_s)
                aborts.append(child_id)
        request.sink.fail(error)

    def _forget(self, output: OutputState, now_s: float) -> None:
        """Takes a finished output out of the books."""
        request, iteration = output.request, self._iteration
        del self._outputs[output.child_id]
        if output.metrics.num_generation_tokens == 0:
            self._num_prefill_tokens -= len(request.prompt_token_ids)
        iteration.finished.append(output.stats(now_s))
        if request.num_unfinished == 0:
            del self._requests[request.request_id]
            iteration.completed.append((request.n, request.max_num_tokens))


def _logprobs_list(params: SamplingParams) -> LogprobsList | None:
    """Where a request's logprobs are gathered; None: it wants none."""
    if params.logprobs is None:
        return None
    return FlatLogprobs() if params.flat_logprobs else []
