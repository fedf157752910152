"""Runs steps: scheduler output -> arrays -> forward -> sample -> model runner output.

The one path for prefill, decode and warm-up, for both backends.

Runs in: workers. Owns: request rows, step arrays. Knows nothing of: devices, queues, text.
"""

from __future__ import annotations

import numpy as np

from octavo.errors import EngineError
from octavo.messages.engine import TokenLogprobs
from octavo.messages.step import ModelRunnerOutput, SchedulerOutput
from octavo.ops.backend import CompiledNetwork
from octavo.ops.step import Int32Array, SampleOutputArrays
from octavo.worker.input_batch import InputBatch
from octavo.worker.request_states import RequestStates

_FAILURES = {
    SampleOutputArrays.NAN: (
        "the model produced values that are not numbers for this request; the weights may be "
        "damaged or need another --dtype"
    ),
    SampleOutputArrays.NOTHING_ALLOWED: (
        "every token was excluded for this request: allowed_token_ids, bad_words, min_tokens or a "
        "grammar leave none; relax one of them"
    ),
}


class StepAborted(EngineError):
    """The step was interrupted by `abort`; it has no result."""


class ModelRunner:
    """One model on one device.

    Args:
        network: compiled, with its cache allocated.
        states: request rows, empty.
        batch: the step arrays over `states`.
        max_logits: most logit rows of a step.
    """

    def __init__(
        self,
        network: CompiledNetwork,
        states: RequestStates,
        batch: InputBatch,
        *,
        max_logits: int,
    ) -> None:
        self._network = network
        self._states = states
        self._batch = batch
        self._output = SampleOutputArrays(max_logits)

    def execute_model(self, scheduled: SchedulerOutput) -> ModelRunnerOutput:
        """Runs one step.

        Raises:
            StepAborted: `abort` was called.
        """
        self._states.update(scheduled)
        if not scheduled.num_scheduled_tokens:
            return ModelRunnerOutput(sampled_token_ids={})
        batch, output = self._batch, self._output
        batch.prepare(scheduled)
        output.reserve_logprobs(batch.step.num_logits, batch.max_logprobs)
        if not self._network.forward(batch.step):
            raise StepAborted("the step was aborted")
        if batch.step.num_logits and not self._network.sample(batch.step, batch.sampling, output):
            raise StepAborted("the step was aborted")
        return self._collect()

    def abort(self) -> None:
        """Makes the running step, and every later one, end early. Any thread."""
        self._network.abort()

    def _collect(self) -> ModelRunnerOutput:
        """Reads the output arrays and appends the drawn tokens to their rows."""
        batch, output = self._batch, self._output
        count = batch.step.num_logits
        sampled: dict[str, list[int]] = {request_id: [] for request_id in batch.request_ids}
        failed, unservable = self._failures()
        is_drawn = output.status[:count] == SampleOutputArrays.OK
        if batch.targets is not None:
            is_drawn &= batch.targets < 0
        requests = batch.logit_requests[is_drawn]
        token_ids = output.sampled[:count][is_drawn]
        self._states.append(batch.rows[requests], token_ids)
        for request, token_id in zip(requests.tolist(), token_ids.tolist(), strict=True):
            sampled[batch.request_ids[request]].append(token_id)
        logprobs, prompt_logprobs = self._logprobs(is_drawn)
        return ModelRunnerOutput(
            sampled_token_ids=sampled,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            failed=failed or None,
            unservable=unservable or None,
        )

    def _failures(self) -> tuple[dict[str, str], list[str]]:
        """Failed requests with the reason, and those of them that asked for the impossible."""
        batch, status = self._batch, self._output.status[: self._batch.step.num_logits]
        failed: dict[str, str] = {}
        unservable: list[str] = []
        for index in np.flatnonzero(status):
            request_id = batch.request_ids[batch.logit_requests[index]]
            failed[request_id] = _FAILURES[int(status[index])]
            if status[index] == SampleOutputArrays.NOTHING_ALLOWED:
                unservable.append(request_id)
        return failed, unservable

    def _logprobs(
        self, is_drawn: np.ndarray[tuple[int], np.dtype[np.bool_]]
    ) -> tuple[dict[str, list[TokenLogprobs]] | None, dict[str, list[TokenLogprobs | None]] | None]:
        """Log-probabilities of drawn tokens and of prompt tokens, by request."""
        batch = self._batch
        drawn: dict[str, list[TokenLogprobs]] = {}
        # nothing predicts a prompt's first token
        prompt: dict[str, list[TokenLogprobs | None]] = {
            batch.request_ids[request]: [None] for request in batch.prompt_starts
        }
        if batch.max_logprobs < 0:
            return None, prompt or None
        wanted: Int32Array = batch.sampling.num_logprobs
        for index, request in enumerate(batch.logit_requests.tolist()):
            if wanted[index] < 0 or self._output.status[index] != SampleOutputArrays.OK:
                continue
            entry = self._entry(index, int(wanted[index]))
            request_id = batch.request_ids[request]
            if is_drawn[index]:
                drawn.setdefault(request_id, []).append(entry)
            else:
                prompt.setdefault(request_id, []).append(entry)
        return drawn or None, prompt or None

    def _entry(self, index: int, num_logprobs: int) -> TokenLogprobs:
        output, columns = self._output, num_logprobs + 1
        return TokenLogprobs(
            token_ids=output.logprob_ids[index, :columns].tolist(),
            logprobs=output.logprob_values[index, :columns].tolist(),
            ranks=output.logprob_ranks[index, :columns].tolist(),
        )
