"""Does a request end with the token it just got?

Called by: `octavo/core/scheduler.py`. Stop *strings* are text and are matched in the front end
(`octavo/frontend/stop_matcher.py`), which then aborts the request here.

Runs in: EngineCore. Owns: the order of the checks. Knows nothing of: text, blocks.
"""

from __future__ import annotations

from octavo.core.request import Request
from octavo.messages.engine import FinishReason


def check_stop(request: Request, max_model_len: int) -> tuple[FinishReason, int | None] | None:
    """Looks at the last token of `request`, which has just been appended.

    Order: nothing but the window ends a request with fewer than `min_tokens` tokens; then end of
    sequence (unless `ignore_eos`), then `stop_token_ids`, then length.

    Returns:
        None to go on, else the reason and, for a token of `stop_token_ids`, that token.
    """
    num_output_tokens = request.num_output_tokens
    if num_output_tokens >= request.min_tokens:
        token_id = request.all_token_ids[-1]
        if token_id in request.eos_token_ids:
            return FinishReason.STOP, None
        if token_id in request.stop_token_ids:
            return FinishReason.STOP, token_id
        if num_output_tokens >= request.max_tokens:
            return FinishReason.LENGTH, None
    if request.num_tokens >= max_model_len:
        return FinishReason.LENGTH, None
    return None
