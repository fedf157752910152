"""What a step's output arrays say about each request: tokens, log-probabilities, failures.

Called by: `octavo/worker/model_runner.py`. Runs in: workers, on the thread that computes. Owns:
nothing. Knows nothing of: request rows (they may belong to others by now), devices, text.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.messages.engine import TokenLogprobs
from octavo.messages.step import ModelRunnerOutput
from octavo.ops.step import SampleOutputArrays
from octavo.wording import first_line
from octavo.worker.input_batch import InputBatch

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

BoolArray = npt.NDArray[np.bool_]


def collect_output(batch: InputBatch, output: SampleOutputArrays) -> ModelRunnerOutput:
    """The result of a step, and word of the drawn tokens to who looks back at them.

    Args:
        batch: the step that ran.
        output: what its sample segment wrote.
    """
    count = batch.step.num_logits
    if count == len(batch.request_ids) and batch.is_plain and not output.status[:count].any():
        token_ids = output.sampled[:count].tolist()  # of each request one: most steps are so
        return ModelRunnerOutput(
            {name: [token] for name, token in zip(batch.request_ids, token_ids, strict=True)}
        )
    sampled: dict[str, list[int]] = {request_id: [] for request_id in batch.request_ids}
    failed, unservable = _failures(batch, output)
    is_drawn = output.status[:count] == SampleOutputArrays.OK
    if batch.targets is not None:
        is_drawn &= batch.targets < 0
    requests = batch.logit_requests[is_drawn]
    token_ids = output.sampled[:count][is_drawn]
    for request, token_id in zip(requests.tolist(), token_ids.tolist(), strict=True):
        sampled[batch.request_ids[request]].append(token_id)
    for row, histories in batch.histories.items():
        if is_drawn[row]:
            for history in histories:
                history.append(int(output.sampled[row]))
    logprobs, prompt_logprobs = _logprobs(batch, output, is_drawn)
    return ModelRunnerOutput(
        sampled_token_ids=sampled,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        failed=failed or None,
        unservable=unservable or None,
    )


def _failures(batch: InputBatch, output: SampleOutputArrays) -> tuple[dict[str, str], list[str]]:
    """Failed requests with the reason, and those of them that asked for the impossible."""
    status = output.status[: batch.step.num_logits]
    failed: dict[str, str] = {}
    unservable: list[str] = []
    for index in np.flatnonzero(status):
        request_id = batch.request_ids[batch.logit_requests[index]]
        if status[index] == SampleOutputArrays.HOOK_FAILED:
            error = output.hook_errors[int(index)]
            failed[request_id] = (
                f"a logits processor failed: {type(error).__name__}: {first_line(error)}"
            )
            continue
        failed[request_id] = _FAILURES[int(status[index])]
        if status[index] == SampleOutputArrays.NOTHING_ALLOWED:
            unservable.append(request_id)
    return failed, unservable


def _logprobs(
    batch: InputBatch, output: SampleOutputArrays, is_drawn: BoolArray
) -> tuple[dict[str, list[TokenLogprobs]] | None, dict[str, list[TokenLogprobs | None]] | None]:
    """Log-probabilities of drawn tokens and of prompt tokens, by request."""
    drawn: dict[str, list[TokenLogprobs]] = {}
    # nothing predicts a prompt's first token
    prompt: dict[str, list[TokenLogprobs | None]] = {
        batch.request_ids[request]: [None] for request in batch.prompt_starts
    }
    if batch.max_logprobs < 0:
        return None, prompt or None
    wanted = batch.sampling.num_logprobs
    for index, request in enumerate(batch.logit_requests.tolist()):
        if wanted[index] < 0 or output.status[index] != SampleOutputArrays.OK:
            continue
        entry = _entry(output, index, int(wanted[index]))
        request_id = batch.request_ids[request]
        if is_drawn[index]:
            drawn.setdefault(request_id, []).append(entry)
        else:
            prompt.setdefault(request_id, []).append(entry)
    return drawn or None, prompt or None


def _entry(output: SampleOutputArrays, index: int, num_logprobs: int) -> TokenLogprobs:
    columns = num_logprobs + 1
    return TokenLogprobs(
        token_ids=output.logprob_ids[index, :columns].tolist(),
        logprobs=output.logprob_values[index, :columns].tolist(),
        ranks=output.logprob_ranks[index, :columns].tolist(),
    )
