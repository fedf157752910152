"""Does a request end with the token it just got?

Called by: `octavo/core/scheduler.py`. Stop *strings* are text and are matched in the front end
(`octavo/frontend/stop_matcher.py`), which then aborts the request here.

Runs in: EngineCore. Owns: the order of the checks. Knows nothing of: text, blocks.
"""

from __future__ import annotations

from octavo.core.request import Request
from octavo.messages.engine import REPETITION_DETECTED, FinishReason


def check_stop(request: Request) -> tuple[FinishReason, int | str | None] | None:
    """Looks at the last token of `request`, which has just been appended.

    It can only find something if the token is one of `request.end_token_ids`, there are
    `request.max_num_tokens` tokens, or the request has `repetition_detection`; the scheduler's loop
    asks for that first.

    Order: nothing but the window ends a request with fewer than `min_tokens` tokens; then end of
    sequence (unless `ignore_eos`), then `stop_token_ids`, then length, then repetition.

    Returns:
        None to go on, else the reason and, for a token of `stop_token_ids`, that token; for a
        repetition `REPETITION_DETECTED`.
    """
    if request.num_output_tokens >= request.min_tokens:
        token_id = request.all_token_ids[-1]
        if token_id in request.eos_token_ids:
            return FinishReason.STOP, None
        if token_id in request.stop_token_ids:
            return FinishReason.STOP, token_id
    if request.num_tokens >= request.max_num_tokens:
        return FinishReason.LENGTH, None
    repetition = request.repetition_detection
    if (
        repetition is not None
        and request.num_output_tokens >= request.min_tokens
        and repetition.is_met(request.all_token_ids, request.num_prompt_tokens)
    ):
        return FinishReason.REPETITION, REPETITION_DETECTED
    return None
