"""Decides what each step computes, and turns what came out into outputs.

There are no prefill and decode phases: every request has `num_computed_tokens`, which chases the
number of its tokens; a step hands out one budget of tokens, first to running requests in their
order, then to waiting ones. Chunked prefill, prefix hits, decoding and resuming after preemption
are all this one rule. Only a resumed request has tokens of both kinds ahead, prompt and generated:
as they may be computed differently, a step takes those of one kind.

If blocks run out, the last request in (fcfs) or the worst (priority) is preempted: it loses its
blocks and starts again when its turn comes, before all that came after it, finding in the prefix
cache what nobody took.

Called by: `octavo/core/engine_core.py`. Uses: `admission.py`, `kv_cache_manager.py`,
`scheduled_step.py`, `stop_check.py`, `request_outputs.py`. Runs in: EngineCore.
Owns: all live requests and their order. Knows nothing of: sockets, tensors, text.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable

from octavo.config.engine import SchedulerConfig
from octavo.core.admission import Admission
from octavo.core.kv_cache_manager import KVCacheManager
from octavo.core.lookahead import looks_back
from octavo.core.request import Request, RequestStatus
from octavo.core.request_outputs import add_end, add_first_facts, last_output
from octavo.core.scheduled_step import ChunkSize, ScheduledStep, StepBuilder, any_size
from octavo.core.step_limit import StepLoad
from octavo.core.stop_check import check_stop
from octavo.messages.engine import (
    EngineCoreOutput,
    EngineCoreRequest,
    FinishReason,
    SchedulerStats,
    TokenLogprobs,
)
from octavo.messages.step import ModelRunnerOutput, SchedulerOutput
from octavo.structured_output.manager import GrammarFailure, StructuredOutputManager

logger = logging.getLogger(__name__)


class Scheduler:
    """All requests of one engine core.

    Args:
        config: budgets and policy.
        max_model_len: most tokens (prompt and generated) of a request.
        kv: the blocks.
        structured_output: grammars.
        clock: seconds; tests have their own.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        *,
        max_model_len: int,
        kv: KVCacheManager,
        structured_output: StructuredOutputManager,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._config = config
        self._kv = kv
        self._structured_output = structured_output
        # a request that is alone and fills the whole cache ends there, as at the window's end
        self._max_len = kv.longest_request(max_model_len)
        self._id_to_request: dict[str, Request] = {}
        self._waiting = Admission(config, kv, structured_output, clock)
        self._running: list[Request] = []
        self._in_flight: deque[ScheduledStep] = deque()
        self._num_arrived = 0
        self._finished_ids: list[str] = []  # the workers are told with the next step
        self._ended: list[EngineCoreOutput] = []  # last outputs of requests that ended early
        self._has_news = False  # requests have ended outside a step
        self._num_preemptions = 0
        self.last_step_load = StepLoad()  # of the step whose result came last

    # -- requests come and go -------------------------------------------------------------------

    @property
    def num_unfinished_requests(self) -> int:
        """Waiting and running requests."""
        return len(self._id_to_request)

    @property
    def has_news(self) -> bool:
        """True if requests have ended outside a step since `stats` was called."""
        return self._has_news

    def add_request(self, message: EngineCoreRequest) -> None:
        """Queues a request. One that could never fit in the cache ends at once, with an error."""
        assert message.prompt_token_ids, "the front end refuses empty prompts"
        assert message.request_id not in self._id_to_request, (
            f"request {message.request_id} is running already"
        )
        request = Request(
            message,
            max_model_len=self._max_len,
            index=self._num_arrived,
            queued_s=self._clock(),
        )
        self._num_arrived += 1
        if request.num_prompt_tokens > self._max_len:
            request.status = RequestStatus.FINISHED
            error = (
                f"The prompt has {request.num_prompt_tokens} tokens, but the whole KV cache holds "
                f"{self._max_len}: shorten it, or start the server with a larger "
                "--kv-cache-memory-bytes."
            )
            last = last_output(request, FinishReason.ERROR, error)
            last.is_request_error = True
            self._ended.append(last)
            self._has_news = True
            return
        self._structured_output.add(message)  # first: it may refuse the request
        request.has_grammar = self._structured_output.constrains(request.request_id)
        request.looks_back = request.has_grammar or looks_back(request.sampling_params)
        self._id_to_request[request.request_id] = request
        self._waiting.add(request)

    def abort_requests(self, request_ids: Iterable[str]) -> list[str]:
        """Ends requests, wherever they are, because their clients do not want them any more; ids
        that are unknown or have ended are ignored.

        Returns:
            The ids that were alive. They get no last output: nobody waits for it, and their ids may
            be in use again when it arrives.
        """
        aborted = []
        for request_id in request_ids:
            request = self._id_to_request.get(request_id)
            if request is not None:
                self._end(request)
                aborted.append(request_id)
        if aborted:
            self._has_news = True
            self._drop_ended_from_running()
        return aborted

    def abort_all(self) -> None:
        """Ends every request with a last output."""
        requests = list(self._id_to_request.values())
        self.abort_requests([request.request_id for request in requests])
        self._ended += [last_output(request, FinishReason.ABORT, None) for request in requests]

    def reset_prefix_cache(self, *, preempt_running: bool = False) -> bool:
        """Forgets every cached prefix. Refused (False) while requests hold blocks.

        Args:
            preempt_running: take them their blocks; they compute everything again.
        """
        if preempt_running:
            for request in reversed(self._running.copy()):
                self._preempt(request)
        return self._kv.reset_prefix_cache()

    # -- a step begins --------------------------------------------------------------------------

    def schedule(
        self, token_budget: int, chunk_size: ChunkSize = any_size
    ) -> SchedulerOutput | None:
        """Decides the next step; None if nothing can be computed now.

        Requests are advanced as if the step were done, so the next step may be scheduled before
        this one's result is there.

        Args:
            token_budget: most tokens of the step, at most `max_num_batched_tokens`.
            chunk_size: limits chunks of prompts further.
        """
        for failure in self._structured_output.take_failures():
            self._refuse(failure)
        step = StepBuilder(token_budget, self._kv, chunk_size)
        none_preempted = self._schedule_running(step)
        if none_preempted:
            self._waiting.admit(step, self._running, max_chunk=self._long_prefill_cap())
        if not step:
            return None
        scheduled = step.build(self._finished_ids)
        self._finished_ids = []
        self._in_flight.append(scheduled)
        return scheduled.output

    def _schedule_running(self, step: StepBuilder) -> bool:
        """Gives running requests their tokens. False if one had to be preempted: then no waiting
        request is admitted in this step, or it would take the place of the preempted one."""
        running, add = self._running, step.add
        cap = self._long_prefill_cap()
        index, none_preempted = 0, True
        while index < len(running) and step.token_budget > 0:
            request = running[index]
            computed, pending = request.num_computed_tokens, request.num_pending_samples
            if pending and (request.looks_back or self._reaches_its_end(request)):
                index += 1
                continue
            num_tokens = len(request.all_token_ids) + pending - computed
            if num_tokens > 1:  # most of the time it is one
                most = min(num_tokens, cap, request.num_tokens_of_kind(computed))
                num_tokens = step.chunk(most, computed)
                if not num_tokens:
                    index += 1
                    continue
            if computed + num_tokens > request.num_slots:
                blocks = self._kv.extend(request, computed + num_tokens)
                if blocks is None:
                    none_preempted = False
                    blocks = self._extend_by_preempting(request, computed + num_tokens, step)
                    if blocks is None:  # it was the victim itself; others may have room
                        continue
                    index = running.index(request)
                step.add_blocks(request, blocks)
            add(request, num_tokens)
            index += 1
        return none_preempted

    def _extend_by_preempting(
        self, request: Request, num_tokens: int, step: StepBuilder
    ) -> list[list[int]] | None:
        """Preempts requests until `request` has its blocks; None if it came to its own turn."""
        while True:
            victim = self._victim()
            step.withdraw(victim)
            self._preempt(victim)
            if victim is request:
                return None
            blocks = self._kv.extend(request, num_tokens)
            if blocks is not None:
                return blocks

    def _victim(self) -> Request:
        if self._config.policy == "priority":
            return max(self._running, key=Request.sort_key)
        return self._running[-1]

    def _preempt(self, request: Request) -> None:
        """Takes away a running request's blocks; it computes everything again when there are some.

        What its steps on their way sample is still right, and its prompt's log-probabilities are
        then complete; if they sample nothing, they are chunks that will be computed again.
        """
        self._running.remove(request)
        self._kv.release(request)
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        if not request.num_pending_samples:
            for step in self._in_flight:
                step.void.add(request)
            if not request.num_output_tokens:
                request.prompt_logprobs.clear()
        self._num_preemptions += 1
        self._finished_ids.append(request.request_id)
        self._waiting.add(request)

    def _long_prefill_cap(self) -> int:
        """Most tokens of one request in a step; there is no cap for one that is alone."""
        threshold = self._config.long_prefill_token_threshold
        if threshold > 0 and len(self._id_to_request) > 1:
            return threshold
        return self._config.max_num_batched_tokens

    def _reaches_its_end(self, request: Request) -> bool:
        """True if the samples on their way make the request as long as it may become."""
        return request.num_tokens + request.num_pending_samples >= request.max_num_tokens

    # -- a step ends ----------------------------------------------------------------------------

    def update_from_output(self, result: ModelRunnerOutput) -> list[EngineCoreOutput]:
        """Takes the result of the oldest step on its way: appends tokens, ends what is done."""
        step = self._in_flight.popleft()
        self.last_step_load = step.load
        if result.failed:
            self._end_failed(result.failed, result.unservable or (), step)
        requests = step.requests
        if step.void:
            requests = [request for request in requests if request not in step.void]
        if result.prompt_logprobs:
            self._gather_prompt_logprobs(result.prompt_logprobs, requests)
        outputs, ended = [], False
        sampled, finished = result.sampled_token_ids, RequestStatus.FINISHED
        for request in requests:
            token_ids = sampled.get(request.request_id)
            if not token_ids or request.status is finished:
                continue  # its prompt is not complete; or it was aborted meanwhile
            request.num_pending_samples -= 1
            all_token_ids = request.all_token_ids
            num_before = len(all_token_ids)
            stop = None
            for token_id in token_ids:
                all_token_ids.append(token_id)
                if (
                    token_id in request.end_token_ids
                    or len(all_token_ids) >= request.max_num_tokens
                    or request.repetition_detection is not None
                ):
                    stop = check_stop(request)
                    if stop is not None:
                        break
            output = EngineCoreOutput(request.request_id, token_ids)
            if request.has_grammar and (stop is None or stop[0] is FinishReason.LENGTH):
                stop = self._stop_of_grammar(request, output) or stop
                if request.status is finished:
                    ended = True
                    continue
            outputs.append(output)
            if result.logprobs:
                output.logprobs = result.logprobs.get(request.request_id)
            if num_before == request.num_prompt_tokens:
                add_first_facts(output, request)
            if stop is not None:
                self._end(request)
                ended = True
                add_end(output, request, stop, num_before)
        if ended:
            self._drop_ended_from_running()
        return outputs

    def _stop_of_grammar(
        self, request: Request, output: EngineCoreOutput
    ) -> tuple[FinishReason, int | None] | None:
        """Whether the request ends for its grammar; if that has failed, it has ended."""
        end = self._structured_output.accept(request.request_id, output.new_token_ids)
        if end is None:
            return None
        if end.error is not None:
            self._refuse(GrammarFailure(request.request_id, end.error, end.is_request_error))
        # an end token that `ignore_eos` lets through is no text
        output.is_complete = request.all_token_ids[-1] not in request.message.eos_token_ids
        return FinishReason.STOP, None

    def _refuse(self, failure: GrammarFailure) -> None:
        """Ends a request whose grammar cannot be used."""
        request = self._id_to_request[failure.request_id]
        logger.info("Request %s: %s", failure.request_id, failure.error)
        self._end(request)
        last = last_output(request, FinishReason.ERROR, failure.error)
        last.is_request_error = failure.is_request_error
        self._ended.append(last)
        self._has_news = True

    def take_outputs(self) -> list[EngineCoreOutput]:
        """The last outputs of requests that ended outside a step."""
        ended, self._ended = self._ended, []
        return ended

    def stats(self) -> SchedulerStats:
        """State now; counts since the last call."""
        stats = SchedulerStats(
            num_running_reqs=len(self._running),
            num_waiting_reqs=len(self._waiting),
            kv_cache_usage=self._kv.usage,
            prefix_cache=self._waiting.take_prefix_stats(),
            num_preemptions=self._num_preemptions,
            num_scheduled_tokens=self.last_step_load.num_tokens,
        )
        self._num_preemptions = 0
        self.last_step_load = StepLoad()
        self._has_news = False
        return stats

    def _gather_prompt_logprobs(
        self, new: dict[str, list[TokenLogprobs | None]], requests: Iterable[Request]
    ) -> None:
        for request in requests:
            request.prompt_logprobs += new.get(request.request_id, ())

    def _end(self, request: Request) -> None:
        """Frees what a request holds. Its last output is the caller's business."""
        if request.status is RequestStatus.RUNNING:
            self._finished_ids.append(request.request_id)
        else:
            self._waiting.remove(request)
        request.status = RequestStatus.FINISHED
        self._kv.release(request)
        self._structured_output.forget(request.request_id)
        del self._id_to_request[request.request_id]

    def _drop_ended_from_running(self) -> None:
        # in place: linear however many ended, and nobody holds an old list
        self._running[:] = [r for r in self._running if r.status is RequestStatus.RUNNING]

    def _end_failed(
        self, failed: dict[str, str], unservable: Collection[str], step: ScheduledStep
    ) -> None:
        """Ends the requests whose part of a step failed, and nobody else.

        What they should have written into blocks is not there. Blocks that became findable with the
        step lose their names; requests that found them already compute everything again.
        """
        for request in step.requests:
            message = failed.get(request.request_id)
            if message is not None and not request.is_finished:
                is_request_error = request.request_id in unservable
                level = logging.INFO if is_request_error else logging.ERROR
                logger.log(level, "Request %s failed: %s", request.request_id, message)
                self._end(request)
                last = last_output(request, FinishReason.ERROR, message)
                last.is_request_error = is_request_error
                self._ended.append(last)
        self._drop_ended_from_running()
        unproven = (step, *self._in_flight)
        spoiled: set[int] = set()
        for request in {request for part in unproven for request in part.requests}:
            # what those who have left since had read, nobody knows any more
            if request.status is not RequestStatus.RUNNING:
                spoiled |= self._disown(request, unproven)
        while spoiled:  # who holds a spoiled block has spoiled those it has computed since
            holders = [r for r in self._running if self._kv.holds_any(r, spoiled)]
            spoiled = set()
            for request in reversed(holders):
                self._preempt(request)
                spoiled |= self._disown(request, unproven)

    def _disown(self, request: Request, unproven: Collection[ScheduledStep]) -> set[int]:
        """Takes back everything that came of a request that does not run: the tokens on their way,
        and the names its blocks got. Returns those of the blocks that somebody holds."""
        request.num_pending_samples = 0
        if not request.num_output_tokens:
            request.prompt_logprobs.clear()
        for step in unproven:
            step.void.add(request)
        return self._kv.unname([b for step in unproven for b in step.named.get(request, ())])
