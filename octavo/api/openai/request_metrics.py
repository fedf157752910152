"""`metrics` of a reply: how long it took, from the times that the engine noted.

Neighbours: `octavo/api/openai/usage.py` (caller). Runs in: API process. Owns: the formulas.
Knows nothing of: text, HTTP. Source: vLLM's `PerRequestMetrics`.
"""

from __future__ import annotations

from octavo import outputs
from octavo.api.openai.protocol import RequestMetrics


def request_metrics(times: outputs.RequestMetrics) -> RequestMetrics:
    """
    Args:
        times: of a request that has one output, which has ended; a time of 0 is not known.
    """
    queued, scheduled = times.queued_s, times.scheduled_s
    first, last, num_tokens = times.first_token_s, times.last_token_s, times.num_generation_tokens
    made = RequestMetrics()
    if queued and scheduled:
        made.queue_time_ms = (scheduled - queued) * 1000
    if not first:
        return made
    made.generation_time_ms = (last - first) * 1000
    if num_tokens > 1:
        made.mean_itl_ms = made.generation_time_ms / (num_tokens - 1)
    if scheduled:
        made.time_to_first_token_ms = (first - scheduled) * 1000
        if last > scheduled:
            made.tokens_per_second = num_tokens / (last - scheduled)
    return made
