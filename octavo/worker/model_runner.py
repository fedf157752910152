"""Runs steps: scheduler output -> arrays -> forward -> sample -> model runner output.

The one path for prefill, decode and warm-up, for both backends. Uses: `input_batch.py` (arrays
in), `step_output.py` (arrays out).

Runs in: workers. Owns: request rows, step arrays. Knows nothing of: devices, queues, text.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from octavo.errors import EngineError
from octavo.messages.step import ModelRunnerOutput, PendingMasks, SchedulerOutput
from octavo.ops.backend import CompiledNetwork
from octavo.ops.step import SampleOutputArrays
from octavo.worker.input_batch import InputBatch
from octavo.worker.request_states import RequestStates
from octavo.worker.step_output import collect_output


class StepAborted(EngineError):
    """The step was interrupted by `abort`; it has no result."""


class PreparedStep:
    """A step whose arrays are filled, and the arrays for what comes out.

    They are used again, `depth` steps later.

    Attributes:
        failed: requests that could not be set up, with the reason.
    """

    __slots__ = ("batch", "failed", "output")

    def __init__(self, batch: InputBatch, max_logits: int) -> None:
        self.batch = batch
        self.failed: dict[str, str] = {}
        self.output = SampleOutputArrays(max_logits)


class ModelRunner:
    """One model on one device.

    `prepare` and `run` may be called by different threads: the first touches the request rows, the
    second only the step's own arrays.

    Args:
        network: compiled, with its cache allocated.
        states: request rows, empty.
        batches: arrays over `states` for each step that may be on its way at the same time.
        max_logits: most logit rows of a step.
    """

    def __init__(
        self,
        network: CompiledNetwork,
        states: RequestStates,
        batches: Sequence[InputBatch],
        *,
        max_logits: int,
    ) -> None:
        self._network = network
        self._states = states
        self._steps = [PreparedStep(batch, max_logits) for batch in batches]

    def prepare(self, scheduled: SchedulerOutput) -> PreparedStep:
        """Takes over what has changed and fills the arrays of the step. The result of the step
        that used them before must have been taken."""
        self._states.update(scheduled)
        step = self._steps.pop(0)
        self._steps.append(step)
        step.failed = self._states.take_failed()
        batch = step.batch
        batch.prepare(scheduled)
        step.output.reserve_logprobs(batch.step.num_logits, batch.max_logprobs)
        return step

    def run(
        self, prepared: PreparedStep, grammar_masks: PendingMasks | None = None
    ) -> ModelRunnerOutput:
        """Computes a step; steps run in the order in which they were prepared.

        Args:
            grammar_masks: awaited before sampling, None if the step has none.

        Raises:
            StepAborted: `abort` was called.
        """
        batch, output, network = prepared.batch, prepared.output, self._network
        if not batch.step.num_tokens:
            return ModelRunnerOutput(sampled_token_ids={})
        start_s = time.perf_counter()
        if grammar_masks is not None:
            grammar_masks.pause()
        if not network.forward(batch.step):
            raise StepAborted("the step was aborted")
        if grammar_masks is not None:
            batch.set_grammar_masks(grammar_masks.result())
        if batch.step.num_logits and not network.sample(batch.step, batch.sampling, output):
            raise StepAborted("the step was aborted")
        backend_s = time.perf_counter() - start_s
        result = collect_output(batch, output)
        result.backend_s = backend_s
        if prepared.failed:
            result.failed = {**(result.failed or {}), **prepared.failed}
        return result

    def execute_model(self, scheduled: SchedulerOutput) -> ModelRunnerOutput:
        """One step from the scheduler's words to its result.

        Raises:
            StepAborted: `abort` was called.
        """
        return self.run(self.prepare(scheduled))

    def idle(self) -> None:
        """No step is on its way, and none is known to come."""
        self._network.prefault_kv(self._states.num_blocks_used)

    def abort(self) -> None:
        """Makes the running step, and every later one, end early. Any thread."""
        self._network.abort()
