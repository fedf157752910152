"""What the front end knows of an unfinished request, and how that becomes a `RequestOutput`.

Neighbours: `octavo/frontend/output_processor.py` (owner), `octavo/frontend/detokenizer.py`.
Runs in: API process, or the user's process offline. Owns: tokens, text and logprobs of each output.
Knows nothing of: the core, event loops, HTTP.
"""

from __future__ import annotations

from typing import Protocol

from octavo.frontend.detokenizer import Detokenizer
from octavo.messages.engine import EngineCoreRequest, FinishReason
from octavo.metrics.stats import FinishedRequestStats
from octavo.outputs import (
    CompletionOutput,
    LogprobsList,
    PositionLogprobs,
    RequestMetrics,
    RequestOutput,
)
from octavo.sampling_params import RequestOutputKind

#: `CompletionOutput.finish_reason` is a word
FINISH_WORDS = {reason: str(reason) for reason in FinishReason}


class OutputSink(Protocol):
    """Where a request's outputs go."""

    def put(self, output: RequestOutput) -> None:
        """Takes an output; the one with `finished` is the last."""

    def fail(self, error: BaseException) -> None:
        """Ends the request with an error."""


class RequestState:
    """One caller's request: `n` outputs of one prompt."""

    __slots__ = (
        "arrival_s",
        "arrival_time_s",
        "child_ids",
        "finals",
        "kind",
        "max_num_tokens",
        "max_tokens",
        "n",
        "num_cached_tokens",
        "num_unfinished",
        "prompt",
        "prompt_logprobs",
        "prompt_token_ids",
        "request_id",
        "sink",
        "stream_interval",
    )

    def __init__(
        self, request: EngineCoreRequest, prompt: str | None, sink: OutputSink, arrival_s: float
    ) -> None:
        params = request.sampling_params
        assert params.max_tokens is not None
        self.request_id = request.request_id
        self.prompt = prompt
        self.prompt_token_ids = request.prompt_token_ids
        self.sink = sink
        self.kind = params.output_kind
        self.stream_interval = params.stream_interval or 1
        self.n = params.n
        self.max_tokens = params.max_tokens
        self.arrival_s = arrival_s  # time.monotonic()
        self.arrival_time_s = request.arrival_time_s  # Unix time
        self.child_ids: list[str] = []  # ids in the core, by output index
        self.num_unfinished = params.n
        self.num_cached_tokens: int | None = None
        self.prompt_logprobs: list[PositionLogprobs | None] | None = None
        self.finals: list[CompletionOutput] = []  # FINAL_ONLY: ended outputs
        self.max_num_tokens = 0  # of one ended output


class OutputState:
    """One of the `n` outputs: a request of its own in the core."""

    __slots__ = (
        "child_id",
        "cumulative_logprob",
        "detokenizer",
        "finish_reason",
        "index",
        "is_prompt_logprobs_sent",
        "logprobs",
        "metrics",
        "num_emitted",
        "num_preemptions",
        "request",
        "stop_reason",
        "token_ids",
    )

    def __init__(
        self,
        request: RequestState,
        index: int,
        child_id: str,
        detokenizer: Detokenizer | None,
        *,
        logprobs: LogprobsList | None,
    ) -> None:
        self.request = request
        self.index = index
        self.child_id = child_id
        self.detokenizer = detokenizer
        #: all tokens so far; with DELTA those not yet emitted
        self.token_ids: list[int] = []
        self.logprobs = logprobs  # like token_ids
        self.cumulative_logprob: float | None = None if logprobs is None else 0.0
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self.metrics = RequestMetrics(arrival_time_s=request.arrival_time_s)
        self.num_preemptions = 0
        self.num_emitted = 0  # deltas given out
        self.is_prompt_logprobs_sent = False

    def finish(self, reason: FinishReason, stop_reason: int | str | None) -> None:
        """Marks the end; `emit` must follow."""
        request = self.request
        self.finish_reason = reason
        self.stop_reason = stop_reason
        request.num_unfinished -= 1
        request.max_num_tokens = max(request.max_num_tokens, self.metrics.num_generation_tokens)

    def emit(self, stream_interval: int = 1) -> None:
        """Gives the sink what it should see now, which may be nothing.

        A delta is given when it has text (or the request has none to give) and holds
        `stream_interval` tokens, the first one and the last one as soon as they are there.
        """
        request = self.request
        is_finished = self.finish_reason is not None
        if request.kind is RequestOutputKind.DELTA:
            completion = self._delta(is_finished, stream_interval)
            if completion is None:
                return
        elif is_finished or request.kind is RequestOutputKind.CUMULATIVE:
            completion = self._whole(is_finished)
        else:
            return
        completions = [completion]
        if request.kind is RequestOutputKind.FINAL_ONLY and request.n > 1:
            request.finals.append(completion)
            if request.num_unfinished:
                return
            completions = sorted(request.finals, key=_by_index)
        request.sink.put(
            RequestOutput(
                request.request_id,
                request.prompt,
                request.prompt_token_ids,
                completions,
                request.num_unfinished == 0,
                self._prompt_logprobs(),
                request.num_cached_tokens,
                self.metrics,
            )
        )

    def _delta(self, is_finished: bool, stream_interval: int) -> CompletionOutput | None:
        if not is_finished and self.num_emitted and len(self.token_ids) < stream_interval:
            return None
        if self.detokenizer is None:
            text = ""
        else:
            text = self.detokenizer.take(is_finished)
            if not text and not is_finished:
                return None
        completion = self._completion(text, self.token_ids, self.logprobs)
        self.token_ids = []
        if self.logprobs is not None:
            self.logprobs = self.logprobs[:0]
        self.num_emitted += 1
        return completion

    def _whole(self, is_finished: bool) -> CompletionOutput:
        text = "" if self.detokenizer is None else self.detokenizer.visible_text(is_finished)
        token_ids, logprobs = self.token_ids, self.logprobs
        if not is_finished:  # the caller keeps it while ours grows
            token_ids = token_ids.copy()
            logprobs = None if logprobs is None else logprobs[:]
        return self._completion(text, token_ids, logprobs)

    def _completion(
        self, text: str, token_ids: list[int], logprobs: LogprobsList | None
    ) -> CompletionOutput:
        reason = self.finish_reason
        return CompletionOutput(
            self.index,
            text,
            token_ids,
            self.cumulative_logprob,
            logprobs,
            None if reason is None else FINISH_WORDS[reason],
            self.stop_reason,
        )

    def _prompt_logprobs(self) -> list[PositionLogprobs | None] | None:
        """With DELTA once, in the first output of index 0; else in every output."""
        request = self.request
        if request.prompt_logprobs is None or request.kind is not RequestOutputKind.DELTA:
            return request.prompt_logprobs
        if self.index or self.is_prompt_logprobs_sent:
            return None
        self.is_prompt_logprobs_sent = True
        return request.prompt_logprobs

    def stats(self, now_s: float) -> FinishedRequestStats:
        """The finished output as numbers; `now_s` is its end on this side."""
        request, times = self.request, self.metrics
        assert self.finish_reason is not None
        stats = FinishedRequestStats(
            finish_reason=FINISH_WORDS[self.finish_reason],
            num_prompt_tokens=len(request.prompt_token_ids),
            num_cached_tokens=request.num_cached_tokens or 0,
            num_generation_tokens=times.num_generation_tokens,
            max_tokens=request.max_tokens,
            num_preemptions=self.num_preemptions,
            e2e_s=now_s - request.arrival_s,
        )
        if times.scheduled_s:
            stats.queue_s = times.scheduled_s - times.queued_s
            if times.first_token_s:
                stats.prefill_s = times.first_token_s - times.scheduled_s
                stats.decode_s = times.last_token_s - times.first_token_s
                stats.inference_s = times.last_token_s - times.scheduled_s
        if times.num_generation_tokens > 1:
            stats.time_per_output_token_s = (times.last_token_s - times.first_token_s) / (
                times.num_generation_tokens - 1
            )
        return stats


def _by_index(completion: CompletionOutput) -> int:
    return completion.index
