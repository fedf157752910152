"""What the engine core says about one request: its first facts, its tokens, its end.

Called by: `octavo/core/scheduler.py`. Runs in: EngineCore. Owns: which output carries what.
Knows nothing of: blocks, queues, steps.
"""

from __future__ import annotations

from octavo.core.request import Request
from octavo.messages.engine import EngineCoreOutput, FinishReason, RequestEvents


def last_output(request: Request, reason: FinishReason, error: str | None) -> EngineCoreOutput:
    """The end of a request that ends outside its own sampling: refused, failed, given up."""
    return EngineCoreOutput(
        request.request_id,
        [],
        finish_reason=reason,
        num_cached_tokens=request.num_cached_tokens or 0,
        events=_events(request),
        error=error,
    )


def add_first_facts(output: EngineCoreOutput, request: Request) -> None:
    """Adds what only the first output of a request carries."""
    output.num_cached_tokens = request.num_cached_tokens or 0
    output.events = _events(request)
    output.prompt_logprobs = request.prompt_logprobs or None


def add_end(
    output: EngineCoreOutput,
    request: Request,
    stop: tuple[FinishReason, int | str | None],
    num_tokens_before: int,
) -> None:
    """Makes `output` the last one.

    Args:
        num_tokens_before: tokens the request had before this step.
    """
    output.finish_reason, output.stop_reason = stop
    output.new_token_ids = request.all_token_ids[num_tokens_before:]  # none behind the end
    if request.max_tokens == 0:  # only the prompt was wanted
        output.new_token_ids = []
        output.finish_reason, output.stop_reason = FinishReason.LENGTH, None
    if output.logprobs is not None:
        output.logprobs = output.logprobs[: len(output.new_token_ids)]
    output.num_cached_tokens = request.num_cached_tokens or 0
    output.events = _events(request)


def _events(request: Request) -> RequestEvents:
    return RequestEvents(request.queued_s, request.scheduled_s, request.num_preemptions)
